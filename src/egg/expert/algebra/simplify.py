"""Algebra that holds for every input, applied until nothing is left to do.

Rules look at one node and its surroundings and say what may stand in its place (:mod:`egg.expert.algebra`).
After each pass what is needed no more is dropped: writes into buffers and random numbers are needed by
definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from egg.expert.algebra import LATE, RULES, Rewrite, Rule
from egg.expert.algebra.twins import without_twins
from egg.expert.graph import Graph, Node, Value

MOST_PASSES = 40
KEPT = frozenset({"update", "random"})


def simplify(graph: Graph, rules: Sequence[Rule] = RULES, late: Sequence[Rule] = LATE) -> Graph:
    """The same program in fewer or cheaper operators; ``late`` rules where no other has anything to do."""
    graph = without_dead(graph)
    for _ in range(MOST_PASSES):
        found = _pass(graph, rules) or _pass(graph, late)
        if found is None:
            break
        graph = without_dead(found)
    return without_dead(without_twins(graph))


def without_dead(graph: Graph) -> Graph:
    """Without the nodes that nothing depends on."""
    needed = set(graph.results)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.op in KEPT or needed.intersection(node.outputs):
            kept.append(node)
            needed.update(name for name in node.inputs if name is not None)
    return graph.rebuilt(tuple(reversed(kept))) if len(kept) < len(graph.nodes) else graph


def _pass(graph: Graph, rules: Sequence[Rule]) -> Graph | None:
    """One walk over the nodes. What was changed is seen through; its neighbours wait for the next walk."""
    nodes: list[Node] = []
    values: dict[str, Value] = dict(graph.values)
    renamed: dict[str, str] = {}
    touched: set[str] = set()
    for node in graph.nodes:
        settled = not touched.intersection(name for name in node.inputs if name is not None)
        rewrite = _first(graph, node, rules) if settled and len(node.outputs) == 1 else None
        if rewrite is None:
            nodes.append(_renamed(node, renamed))
            continue
        touched.add(node.output)
        if rewrite.value:
            renamed[node.output] = renamed.get(rewrite.value, rewrite.value)
            continue
        values |= {value.name: value for value in rewrite.values}
        nodes += [_renamed(new, renamed) for new in rewrite.nodes]
    if not touched:
        return None
    results = tuple(renamed.get(name, name) for name in graph.results)
    return replace(graph, results=results).rebuilt(tuple(nodes), values)


def _first(graph: Graph, node: Node, rules: Sequence[Rule]) -> Rewrite | None:
    return next((found for rule in rules if (found := rule(graph, node)) is not None), None)


def _renamed(node: Node, renamed: dict[str, str]) -> Node:
    if not any(name in renamed for name in node.inputs if name is not None):
        return node
    return node.with_inputs(*(name if name is None else renamed.get(name, name) for name in node.inputs))
