"""What is added to the scores of attention, laid out as attention reads it: keys side by side.

A bias of heads is often a table looked up by the distance of two places: the lookup makes ``[queries, keys,
heads]``, and a permutation brings the heads to the front. The permutation is free, and its price is paid by
the attention, whose blocks read every key from another line of memory, once for each example. Where the
lookup is a pass of its own anyway, it may as well store what it makes in the other order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from egg.expert.emit.reader import address, through_view
from egg.expert.graph import Graph, Node, Origin, Value, contiguous_stride
from egg.expert.index import Expr, Index, loop_index
from egg.expert.parts import Unfit
from egg.expert.sizes import ONE, Size, product

STREAMED = frozenset({"gather", "pointwise", "where"})
"""What makes values element by element, in whatever order they lie."""
COLUMN = "column"


def masks_by_key(graph: Graph) -> Graph:
    """The same program, with other strides for what masks of attention are read from."""
    values = dict(graph.values)
    for node in graph.nodes:
        mask = node.inputs[3] if node.op == "attention" and len(node.inputs) > 3 else None
        if mask is not None:
            values |= _Walk(graph).laid(graph.value(mask))
    return replace(graph, values=values) if values != graph.values else graph


@dataclass
class _Walk:
    """From a mask back to what it is computed from, with the index of each value by query and key."""

    graph: Graph
    met: dict[str, Index] = field(default_factory=dict)
    readers: set[int] = field(default_factory=set)

    def laid(self, mask: Value) -> dict[str, Value]:
        names = (*(f"lead_{dim}" for dim in range(mask.rank - 2)), "row", COLUMN)[-mask.rank :]
        index = tuple(
            Expr() if size == ONE else loop_index(name, size)
            for name, size in zip(names, mask.shape, strict=True)
        )
        self._back(mask.name, index)
        found: dict[str, Value] = {}
        for name, at in self.met.items():
            turned = self._turned(self.graph.value(name), at)
            views = self._views(turned) if turned is not None else None
            if turned is not None and views is not None:
                found |= {turned.name: turned, **views}
        return found

    def _back(self, name: str, index: Index) -> None:
        node = self.graph.producer(name)
        if node is None or name in self.met:
            return
        try:
            if node.op == "view":
                inner = [(str(node.inputs[0]), through_view(self.graph, node, index))]
            elif node.op in ("pointwise", "where"):
                inner = list(self._operands(node, index))
            else:
                inner = []
        except Unfit:
            return
        self.met[name] = index
        for source, at in inner:
            self.readers.add(id(node))
            self._back(source, at)

    def _operands(self, node: Node, index: Index) -> Iterator[tuple[str, Index]]:
        for name in node.inputs:
            if name is not None:
                shape = self.graph.value(name).shape
                own = index[len(index) - len(shape) :]
                yield name, tuple(Expr() if s == ONE else at for at, s in zip(own, shape, strict=True))

    def _turned(self, value: Value, index: Index) -> Value | None:
        """The value with one dimension moved to the front, so that keys lie side by side."""
        node, graph = self.graph.producer(value.name), self.graph
        attentions = [id(n) for n in graph.consumers[value.name] if n.op == "attention"]
        own = all(id(n) in self.readers or id(n) in attentions for n in graph.consumers[value.name])
        if node is None or node.op not in STREAMED or value.name in graph.results or not own:
            return None
        if value.origin is not Origin.NODE or value.lent or not _along(value, index):
            return None
        for dim in range(value.rank):
            order = (dim, *(d for d in range(value.rank) if d != dim))
            inner = contiguous_stride(tuple(value.shape[d] for d in order))
            stride = dict(zip(order, inner, strict=True))
            tried = replace(value, stride=tuple(stride[d] for d in range(value.rank)))
            if address(tried, index).stride_of(COLUMN) == ONE:
                return tried
        return None

    def _views(self, source: Value) -> dict[str, Value] | None:
        """The views of a value with the strides that they have then; ``None`` where one has none."""
        found: dict[str, Value] = {}
        for node in self.graph.consumers[source.name]:
            if node.op != "view":
                continue
            stride = _view_stride(self.graph, node, source)
            if stride is None:
                return None
            view = replace(self.graph.result(node), stride=stride)
            further = self._views(view)
            if further is None:
                return None
            found |= {view.name: view, **further}
        return found


def _along(value: Value, index: Index) -> bool:
    """Whether keys lie apart."""
    at = address(value, index)
    return COLUMN in at.symbols() and at.stride_of(COLUMN) != ONE


def _view_stride(graph: Graph, node: Node, source: Value) -> tuple[Size, ...] | None:
    """Of a permutation, or of a reshape that takes dimensions apart or adds some of size one."""
    shape = graph.result(node).shape
    if node["how"] == "permute":
        return tuple(source.stride[dim] for dim in node["dims"])
    if node["how"] != "reshape":
        return None
    left, found = list(shape), list[Size]()
    for size, stride in zip(source.shape, source.stride, strict=True):
        parts: list[Size] = []
        while left and product(parts) != size:
            parts.append(left.pop(0))
        if product(parts) != size:
            return None
        found += [stride * product(parts[at + 1 :]) for at in range(len(parts))]
    return (*found, *(ONE for _ in left)) if all(size == ONE for size in left) else None


__all__ = ["masks_by_key"]
