"""Lists of tensors that grow: a joined list goes on where an earlier one ends.

A dense block joins everything that came before for each of its layers. Read piece by piece, layer number
forty would choose between forty tensors for every element. The same numbers in another order of work: what
was joined for the layer before, with one piece more. Every layer then does the same, with other sizes.
"""

from __future__ import annotations

from dataclasses import replace

from egg.expert.graph import Graph, Node

FEWEST = 3
"""Pieces from which on an earlier list is worth being read instead."""


def chained(graph: Graph) -> Graph:
    """Where the pieces of a list begin with all those of an earlier one, that one stands for them."""
    joined: dict[tuple[int, tuple[str | None, ...]], str] = {}
    """By dimension and pieces."""
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op == "cat" and len(node.outputs) == 1:
            dim, pieces = int(node["dim"]), node.inputs
            if len(pieces) >= FEWEST:
                shorter = (pieces[:count] for count in range(len(pieces) - 1, 1, -1))
                if first := next((piece for piece in shorter if (dim, piece) in joined), None):
                    node = replace(node, inputs=(joined[dim, first], *pieces[len(first) :]))
            joined[dim, pieces] = node.output
        nodes.append(node)
    return graph.rebuilt(tuple(nodes))
