"""What a group of this pattern asks for: rows that are joined by the place that an index has for each.

The *root* is the scatter that the group grew around. Other scatters of the group have the same index: the
maxima and sums of a softmax over incoming edges, the counts of a mean. What reads them by that index
(``total[dst]`` at an edge that goes to ``dst``) reads the place that the edge is filed under: it is at hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from egg.expert.algebra.places import numbers
from egg.expert.emit.kernel import is_large
from egg.expert.emit.reader import beyond_view
from egg.expert.graph import Graph, Node, Value
from egg.expert.index import Expr, Index, loop_index, unflat
from egg.expert.parts import Group, Unfit
from egg.expert.sizes import ONE, Size, product

NODE, EDGE, HEAD, COLUMN = "node", "edge", "head", "col"
"""Loop indices of the kernels: a place of the result, a row of the source, a part of the row that a program
has, a position in the row or in that part."""
FEWEST_COLUMNS = 16
"""Neighbours in memory of a row, below which atomics are few and a walk's lanes are idle."""
JOINS = frozenset({"sum", "max", "min"})
IN_PLACE = frozenset({"pointwise", "where", "triangle"})
DTYPES = frozenset({"float32", "int32", "int64"})


@dataclass(frozen=True)
class Problem:
    graph: Graph
    group: Group

    @cached_property
    def scatters(self) -> tuple[Node, ...]:
        return tuple(node for node in self.group.nodes if node.op == "scatter")

    @cached_property
    def root(self) -> Node:
        return root_of(self.group)

    @property
    def result(self) -> Value:
        return self.graph.result(self.root)

    @property
    def index(self) -> Value:
        return self.graph.value(str(self.root.inputs[1]))

    @property
    def dim(self) -> int:
        return self.root["dim"]

    @property
    def edges(self) -> Size:
        """Rows of the source."""
        return self.graph.value(str(self.root.inputs[0])).shape[self.dim]

    @property
    def nodes(self) -> Size:
        """Places of the result."""
        return self.result.shape[self.dim]

    @property
    def row(self) -> tuple[Size, ...]:
        """The shape of a row: all dimensions but the one that is joined along."""
        return (*self.result.shape[: self.dim], *self.result.shape[self.dim + 1 :])

    @property
    def features(self) -> Size:
        return product(self.row)

    @cached_property
    def heads(self) -> Size:
        """Parts of a row that programs have one of: those that the other scatters have a number for.

        A softmax over edges has a weight for each head. Where a program has columns of one head, its weights
        are numbers of the rows; with columns of several, every column would compute its head's anew.
        """
        lead, last = product(self.row[:-1]), self.row[-1] if self.row else ONE
        others = [self.graph.result(node) for node in self.scatters if node is not self.root]
        by_head = any(made.elements == self.nodes * lead for made in others)
        together = self.dim == 0 and lead != ONE and last.value >= FEWEST_COLUMNS
        return lead if by_head and together else ONE

    @property
    def columns(self) -> Size:
        """Of a row, or of one of its parts."""
        return self.features if self.heads == ONE else self.row[-1]

    @cached_property
    def place(self) -> str:
        """The numbers of the index (:func:`egg.expert.algebra.places.numbers`)."""
        return self.numbers(self.index.name)

    def at(self, name: str) -> Index:
        """The tile's index into the root's result (:data:`NODE`) or into its source (:data:`EDGE`)."""
        size = self.nodes if name == NODE else self.edges
        inside = unflat(loop_index(COLUMN, self.features), self.row)
        if self.heads != ONE:
            part = unflat(loop_index(HEAD, self.heads), self.row[:-1])
            inside = (*part, loop_index(COLUMN, self.columns))
        return (*inside[: self.dim], loop_index(name, size), *inside[self.dim :])

    def numbers(self, name: str) -> str:
        return numbers(self.graph, name)

    def by_place(self, chosen: str, size: Size) -> bool:
        """Whether a gather from ``size`` rows by this index reads the row of an edge's own place."""
        return size == self.nodes and self.numbers(chosen) == self.place

    # -- what follows ------------------------------------------------------------------------------

    @cached_property
    def written(self) -> tuple[Value, Index]:
        """What the group stores, and its index where the root's result has that of the tile."""
        places = self._followed()
        names = self.group.writes(self.graph)
        if len(names) != 1 or names[0] not in places:
            raise Unfit("something is needed elsewhere that is not the joined rows")
        return self.graph.value(names[0]), places[names[0]]

    def _followed(self) -> Mapping[str, Index]:
        places = {self.result.name: self.at(NODE)}
        for node in self.group.nodes:
            inside = [str(name) for name in node.inputs if name in places]
            if not inside:
                continue
            if node.op in IN_PLACE:
                shape = self.graph.result(node).shape
                whole = [name for name in inside if self.graph.value(name).shape == shape]
                if not whole:
                    raise Unfit("joined rows are repeated along another dimension")
                places[node.output] = places[whole[0]]
            elif node.op == "view":
                places[node.output] = beyond_view(self.graph, node, places[inside[0]])
            else:
                raise Unfit(f"{node.op} behind joined rows")
        return places

    # -- what cannot be written --------------------------------------------------------------------

    def check(self) -> None:
        """:class:`Unfit`, with the reason, where the rows are not filed one by one under one index."""
        for reason in self._reasons():
            raise Unfit(reason)

    def _reasons(self) -> Iterator[str]:
        for node in self.scatters:
            if len(node.inputs) > 2:
                yield "elements in the place of what is there already"
                return
            source, index, made = *map(self.graph.value, map(str, node.inputs)), self.graph.result(node)
            dim = node["dim"]
            if node["fn"] not in JOINS or "whole" in node.attributes or made.dtype not in DTYPES:
                yield f"rows of {made.dtype} are joined by {node['fn']}"
            if any(size != ONE for d, size in enumerate(index.shape) if d != dim) or index.shape[dim] == ONE:
                yield "an index that is not one place for each row"
            if index.shape[dim] != source.shape[dim] or index.dtype not in ("int32", "int64"):
                yield "an index that does not have a place for each row"
            if any(a != b for d, (a, b) in enumerate(zip(source.shape, made.shape, strict=True)) if d != dim):
                yield "rows that are shorter than those of the result"
            if (made.shape[dim], source.shape[dim]) != (self.nodes, self.edges):
                yield "scatters of different sizes"
            if made.elements.value > self.result.elements.value:
                yield "a scatter of longer rows than the group's own"
            if self.numbers(index.name) != self.place:
                yield "scatters by different indices"
        value, _ = self.written
        if value.lent or any(step.number == 0 for step in value.stride):
            yield "the result is a part of another"
        if any(is_large(self.graph.value(n)) for n in (*self.group.reads(self.graph), value.name)):
            yield "tensors beyond the reach of 32 bits"

    def constant(self, name: str) -> float | int | None:
        """The number that a value holds everywhere; ``None`` where it may hold others."""
        node = self.graph.producer(name) if any(name in n.outputs for n in self.group.nodes) else None
        if node is not None and node.op == "view":
            return self.constant(str(node.inputs[0]))
        return node.get("fill") if node is not None and node.op == "constant" else None


def root_of(group: Group) -> Node:
    """The last scatter of a group that does more than count."""
    scatters = [node for node in group.nodes if node.op == "scatter"]
    counted = {node.output for node in group.nodes if node.op == "constant"}
    for node in group.nodes:
        if node.op == "view" and node.inputs[0] in counted:
            counted.add(node.output)
    return next((node for node in reversed(scatters) if node.inputs[0] not in counted), scatters[-1])


def fixed(index: Index, dim: int, at: Expr) -> Index:
    """An index with another place along one dimension."""
    return (*index[:dim], at, *index[dim + 1 :])
