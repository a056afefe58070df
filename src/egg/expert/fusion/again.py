"""Values that are computed where they are read, each time, since that is cheaper than storing them once.

A statistic of a tensor reads it as fp32, and so does a product further on: the cast to fp32 has two readers,
so the group of the first would store it for the second, twice the bytes of what it was cast from. What
follows from one tensor by cheap arithmetic need not be stored where that tensor is in memory anyhow and is no
larger: every group gets operators of its own. A product or a convolution reads its operands many times and
straight into its tiles, so it is only given casts, from something narrower.

Which operators share a kernel decides what would be stored, so this looks at a finished partition and
rewrites the graph for a second one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from egg.expert.graph import Graph, Node, Origin, Value
from egg.expert.scalar import cheap

LONGEST = 4
"""Operators that are computed again for one value, at most."""
READING = frozenset({"loops", "product", "convolution", "attention"})
"""Patterns whose kernels can compute what they read."""

Home = Callable[[Node], tuple[str, Sequence[Node]]]
"""The pattern and the nodes of the group that a node is in."""


def recomputed(graph: Graph, home: Home, refused: Collection[str] = ()) -> tuple[Graph, Mapping[str, str]]:
    """The graph with operators of its own for each group that reads what is cheaper not to store, and by the
    value that each of those makes: whose copy it is.

    ``refused``: values that some group could not compute by itself.
    """
    again = _Again(graph, home, frozenset(refused))
    return again.rewritten(), again.copies


@dataclass
class _Again:
    graph: Graph
    home: Home
    refused: frozenset[str]

    def __post_init__(self) -> None:
        self.copies: dict[str, str] = {}
        self._values: dict[str, Value] = dict(self.graph.values)
        self._gone: set[str] = set()
        """Values that are no longer stored."""
        self._overwritten = {node.inputs[0] for node in self.graph.nodes if node.op == "update"}

    def rewritten(self) -> Graph:
        made: dict[int, list[Node]] = {}
        """By the node whose value they compute again: they stand behind it."""
        instead: dict[int, dict[str, str]] = {}
        """By reader: what it reads in the place of what."""
        for node in self.graph.nodes:
            readers = self._foreign_readers(node)
            way = self._way(node) if readers else []
            groups = [self.home(reader) for reader in readers]
            if not way or not all(self._worth(way, pattern) for pattern, _ in groups):
                continue
            self._gone.add(node.output)
            for group in {id(group): group for _, group in groups}.values():
                steps = self._copied(way)
                made.setdefault(id(node), []).extend(steps)
                inside = {id(member) for member in group}
                for reader in readers:
                    if id(reader) in inside:
                        instead.setdefault(id(reader), {})[node.output] = steps[-1].output
        if not self.copies:
            return self.graph
        nodes: list[Node] = []
        for node in self.graph.nodes:
            other = instead.get(id(node), {})
            nodes.append(node.with_inputs(*(other.get(str(n), n) for n in node.inputs)) if other else node)
            nodes += made.get(id(node), [])
        return self.graph.rebuilt(tuple(nodes), self._values)

    def _foreign_readers(self, node: Node) -> list[Node]:
        """Who reads it in another group; nobody, where it is stored in any case."""
        if len(node.outputs) != 1 or node.output in self.graph.results or node.output in self.refused:
            return []
        inside = {id(member) for member in self.home(node)[1]}
        return [reader for reader in self.graph.consumers[node.output] if id(reader) not in inside]

    def _way(self, node: Node) -> list[Node]:
        """From something in memory, no larger, to the value; empty where there is none."""
        found: list[Node] = []
        step: Node | None = node
        while step is not None and len(found) < LONGEST and _is_cheap(step):
            found.append(step)
            source = str(step.inputs[0])
            if self._in_memory(source):
                larger = self.graph.value(source).bytes > self.graph.result(node).bytes
                computes = any(member.op == "pointwise" for member in found)
                return found[::-1] if computes and not larger else []
            step = self.graph.producer(source)
        return []

    def _in_memory(self, name: str) -> bool:
        if name in self._overwritten:
            return False
        if self.graph.value(name).origin is not Origin.NODE or name in self.graph.results:
            return True
        producer = self.graph.producer(name)
        if producer is None or name in self._gone:
            return False
        inside = {id(member) for member in self.home(producer)[1]}
        return any(id(reader) not in inside for reader in self.graph.consumers[name])

    def _worth(self, way: Sequence[Node], pattern: str) -> bool:
        if pattern == "loops":
            return True
        before, after = self.graph.value(str(way[0].inputs[0])), self.graph.result(way[-1])
        casts = all(node.op == "view" or node["fn"] == "cast" for node in way)
        return pattern in READING and casts and before.bytes < after.bytes

    def _copied(self, way: Sequence[Node]) -> list[Node]:
        steps: list[Node] = []
        for node in way:
            value = replace(self.graph.result(node), name=self._fresh(node.output))
            self._values[value.name] = value
            self.copies[value.name] = way[-1].output
            source = steps[-1].output if steps else node.inputs[0]
            steps.append(replace(node, inputs=(source,), outputs=(value.name,)))
        return steps

    def _fresh(self, stem: str) -> str:
        taken, number = {**self._values, **self.graph.symbols}, 2
        while f"{stem}_{number}" in taken:
            number += 1
        return f"{stem}_{number}"


def _is_cheap(node: Node) -> bool:
    """A view, or a pointwise function of one tensor that takes no special function."""
    if node.op not in ("view", "pointwise") or len(node.inputs) != 1 or node.inputs[0] is None:
        return False
    return node.op == "view" or cheap(node["fn"])
