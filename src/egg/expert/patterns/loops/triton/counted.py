"""Places that a kernel counts instead of loading them: windows, every second element.

What is loaded at a place that overshoots is the first one, which is always there. A counted place overshoots
as well, so it is either an index like any other, of which masks are known, or gets a mask of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from egg.expert.emit.reader import fitted, through_view
from egg.expert.graph import Graph, Node
from egg.expert.index import Expr, Index


def counted_places(graph: Graph, own: Mapping[str, Node], name: str, at: Index) -> Expr | None:
    """Places that follow from ``at`` by sums and multiples; ``None`` for all others. ``own``: what the kernel
    computes, by name."""
    node = own.get(name)
    if node is None:
        return None
    if "range" in node.attributes:
        start, step = node["range"]
        return at[0] * step + start if type(start) is type(step) is int else None
    if node.op == "view":
        return counted_places(graph, own, str(node.inputs[0]), through_view(graph, node, at))
    if node.op != "pointwise" or node["fn"] != "add" or len(node.inputs) != 2:
        return None
    found = Expr()
    for given in map(str, node.inputs):
        part = counted_places(graph, own, given, fitted(graph.value(given), at))
        if part is None:
            return None
        found = found + part
    return found


def counts(own: Mapping[str, Node], name: str) -> bool:
    """Whether a whole number is computed from places that are counted. Every node is met once: a walk over a
    graph chooses each place by the one before, on several ways."""
    waiting, met = [name], {name}
    while waiting:
        node = own.get(waiting.pop())
        if node is None:
            continue
        if "range" in node.attributes:
            return True
        new = {given for given in node.inputs if given is not None} - met
        waiting += new
        met |= new
    return False
