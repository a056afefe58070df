"""Choices that nearly always fall the same way: a tensor that is copied, with new elements at few places.

A cache with a new row at each sequence's length is ``where(place == length, new, old)`` over the whole cache.
Computed for every element, the new row (its rotation, the tables for that) takes more instructions and more
accesses to the L1 cache than the copy. Where one place in many is chosen, a kernel looks first whether its
tile holds any such place, and only then computes what goes there; all other tiles are a plain copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from egg.expert.algebra.overwritten import compared_place
from egg.expert.graph import FLOATS, Graph, Node

RARE = 2**15
"""Elements of which one place is chosen, at least: eight tiles or more, so that one in eight computes it."""


def rare_choices(graph: Graph, nodes: Sequence[Node]) -> Iterator[Node]:
    """Those of ``nodes`` whose second operand is hardly ever chosen, and whose third is there as it is."""
    makers = {name: node for node in nodes for name in node.outputs}
    for node in nodes:
        if node.op != "where":
            continue
        made = graph.result(node)
        condition, new, old = (graph.value(str(name)) for name in node.inputs)
        whole = made.dtype in FLOATS and new.dtype == old.dtype == made.dtype and old.shape == made.shape
        if whole and is_plain(makers, old.name) and not is_plain(makers, new.name, ("constant",)):
            place = compared_place(graph, makers, condition.name)
            lines = made.shape[made.rank - place[0] :] if place is not None else ()
            elements = 1
            for size in lines:
                elements *= size.value
            if elements >= RARE:
                yield node


def is_plain(makers: dict[str, Node], name: str, last: Sequence[str] = ("",)) -> bool:
    """Whether a value is a view of what lies in memory, or of what one of the operators ``last`` makes."""
    while name in makers and makers[name].op == "view":
        name = str(makers[name].inputs[0])
    return (makers[name].op if name in makers else "") in last
