"""16-bit values that a kernel rounds as PyTorch does, though it holds them in fp32.

Within a kernel values of 16 bits stay in fp32, which is as good as rounding each, or better, where a result
need only be near. Where it has to be the same, a cast behind the value rounds it.
"""

from __future__ import annotations

from dataclasses import replace

from egg.expert.algebra.compensated import compensating
from egg.expert.algebra.decided import deciding
from egg.expert.emit.names import numbered
from egg.expert.graph import Graph, Node, Value


def rounded_where_it_shows(graph: Graph) -> Graph:
    """The graph with a cast behind every 16-bit value of which more than its neighbourhood counts."""
    needed = compensating(graph) | deciding(graph)
    if not needed:
        return graph
    nodes: list[Node] = []
    values: dict[str, Value] = dict(graph.values)
    for node in graph.nodes:
        if len(node.outputs) != 1 or node.output not in needed:
            nodes.append(node)
            continue
        own = graph.result(node)
        computed = replace(own, name=numbered(f"{own.name}_computed", values.keys()))
        wide = replace(own, name=numbered(f"{own.name}_wide", values.keys()), dtype="float32")
        values |= {computed.name: computed, wide.name: wide}
        nodes.append(replace(node, outputs=(computed.name,)))
        nodes.append(_cast(computed, wide))
        nodes.append(_cast(wide, own))
    return graph.rebuilt(tuple(nodes), values)


def _cast(value: Value, to: Value) -> Node:
    return Node("pointwise", (value.name,), (to.name,), {"fn": "cast", "scalars": ()}, "rounded")
