"""Calls that put elements into a tensor without copying it first, where nobody else needs it as it was.

``logits.scatter(1, tokens, penalised)`` copies all logits for the sake of a few hundred. Where the file has
computed them itself, and whatever else reads them comes before the call, the method that writes in place
leaves the same numbers.
"""

from __future__ import annotations

from egg.expert.graph import Graph, Node, Operand, Origin

METHODS = {
    "torch.scatter": "scatter_",
    "torch.scatter_add": "scatter_add_",
    "torch.index_add": "index_add_",
}
OWN_MEMORY = frozenset({"pointwise", "where", "softmax", "norm", "reduce", "matmul", "conv", "scan"})
"""Operators whose result is no view of anything."""


def in_place(graph: Graph, node: Node) -> str | None:
    """The method that may do what ``node`` does."""
    arguments, method = node.get("arguments", ()), METHODS.get(str(node.get("target")))
    if method is None or not arguments or not isinstance(arguments[0], Operand) or arguments[0].place:
        return None
    (name, *others), made = map(str, node.inputs), graph.result(node)
    source, maker = graph.value(name), graph.producer(name)
    same = (source.shape, source.dtype, source.stride) == (made.shape, made.dtype, made.stride)
    fresh = maker is not None and maker.op in OWN_MEMORY and source.origin is Origin.NODE
    if not same or not fresh or name in (*others, *graph.results):
        return None
    return method if _read_before(graph, name, node, _ancestors(graph, node)) else None


def _ancestors(graph: Graph, node: Node) -> frozenset[int]:
    """What must have run before it."""
    found: set[int] = set()
    waiting = [node]
    while waiting:
        makers = (graph.producer(str(name)) for name in waiting.pop().inputs if name is not None)
        new = [maker for maker in makers if maker is not None and id(maker) not in found]
        found |= {id(maker) for maker in new}
        waiting += new
    return frozenset(found)


def _read_before(graph: Graph, name: str, node: Node, ancestors: frozenset[int]) -> bool:
    """Whether all who read a value, or a view of it, have done so when ``node`` runs."""
    for reader in graph.consumers[name]:
        if reader is node:
            continue
        if reader.op in ("library", "joined") or id(reader) not in ancestors:
            return False
        if reader.op == "view":
            (view,) = reader.outputs
            if view in graph.results or not _read_before(graph, view, node, ancestors):
                return False
    return True
