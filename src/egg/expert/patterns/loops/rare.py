"""Choices that nearly always fall the same way: a tensor that is copied, with new elements at few places.

A cache with a new row at each sequence's length is ``where(place == length, new, old)`` over the whole cache.
Computed for every element, the new row (its rotation, the tables for that) takes more instructions and more
accesses to the L1 cache than the copy. Where one place in many is chosen, a kernel looks first whether its
tile holds any such place, and only then computes what goes there; all other tiles are a plain copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from egg.expert.graph import FLOATS, Graph, Node
from egg.expert.sizes import ONE

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
            dim = _compared(graph, makers, condition.name)
            lines = made.shape[made.rank - dim :] if dim else ()
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


def _compared(graph: Graph, makers: dict[str, Node], name: str) -> int:
    """The dimension, counted from the last as one, along which a condition holds at one place at most: it
    compares the count of places there with something that is the same for all of them. 0: there is none."""
    node = makers.get(name)
    if node is None or node.op != "pointwise" or node["fn"] != "eq" or len(node.inputs) != 2:
        return 0
    for count, other in (node.inputs, node.inputs[::-1]):
        dim = _counted(graph, makers, str(count))
        own = graph.value(str(other)).shape
        if dim and (dim > len(own) or own[-dim] == ONE):
            return dim
    return 0


def _counted(graph: Graph, makers: dict[str, Node], name: str) -> int:
    """The only dimension of a value that counts its places, from the last as one."""
    shape = graph.value(name).shape
    wide = [len(shape) - dim for dim, size in enumerate(shape) if size != ONE]
    while name in makers and makers[name].op == "view" and makers[name]["how"] == "reshape":
        name = str(makers[name].inputs[0])
    counts = name in makers and makers[name].op == "constant" and "range" in makers[name].attributes
    return wide[0] if counts and len(wide) == 1 else 0
