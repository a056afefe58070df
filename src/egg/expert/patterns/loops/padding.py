"""Choices between a number and an element in memory: what is not chosen need not be loaded.

A sum over the tokens that are not padding is ``where(mask == 0, 0, states).sum(1)``. Where the condition is
the same along the contiguous run of what it hides, whole rows are left out of the loads, and padding costs no
bandwidth. A condition for each element would cut vector loads into single ones, so that stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from egg.expert.graph import Graph, Node
from egg.expert.patterns.loops.rare import is_plain


def padded_choices(graph: Graph, nodes: Sequence[Node]) -> Iterator[tuple[Node, int]]:
    """Those of ``nodes`` that choose between a number and what lies in memory and is read for nothing else,
    with the place of the latter among their operands."""
    makers = {name: node for node in nodes for name in node.outputs}
    for node in nodes:
        if node.op != "where":
            continue
        for place in (1, 2):
            name, other = str(node.inputs[place]), str(node.inputs[3 - place])
            whole = graph.value(name).shape == graph.result(node).shape
            once = sum(name in reader.inputs for reader in nodes) == 1
            if whole and once and name not in makers and is_plain(makers, other, ("constant",)):
                yield node, place
