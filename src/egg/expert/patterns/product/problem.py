"""The product of a group as three loops: rows, columns and the summed dimension, with an index per operand.

Whatever the rank of the operands, a product is a batch of ``M x K`` by ``K x N``. Where the right operand is
one matrix for all of the batch, the leading dimensions of the left one are rows like any other, so there is
no batch at all. What stands before the product in the group is read through; what follows is the tail.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from egg.expert.emit.host import Host
from egg.expert.emit.reader import address, through_view
from egg.expert.graph import FLOATS, Graph, Node, Origin, Value
from egg.expert.index import Expr, Index, flat, loop_index, unflat
from egg.expert.parts import Group, Unfit, WithBias
from egg.expert.sizes import ONE, Size, as_size, product


@dataclass(frozen=True)
class Problem(WithBias):
    """One ``matmul`` node, its loops, and the nodes before and after it."""

    graph: Graph
    group: Group
    node: Node

    @classmethod
    def of(cls, graph: Graph, group: Group) -> Problem:
        products = [node for node in group.nodes if node.op == "matmul"]
        if len(products) != 1:
            raise Unfit(f"{len(products)} products in one group")
        found = cls(graph, group, products[0])
        for value in (found.left, found.right):
            if value.dtype not in FLOATS:
                raise Unfit(f"a product of {value.dtype}")
            if value.rank < 2:
                raise Unfit("a product of vectors that were not reshaped")
        if any(size.value == 0 for size in (*found.left.shape, *found.right.shape)):
            raise Unfit("an empty product")
        if found.depth == ONE:
            raise Unfit("a product that adds up one element: no tile of it would know where that ends")
        return found

    @cached_property
    def host(self) -> Host:
        """Names of the function that computes it on the host."""
        return Host(self.graph, self.group)

    @cached_property
    def left(self) -> Value:
        return self.operand(0)

    @cached_property
    def right(self) -> Value:
        return self.operand(1)

    @property
    def before(self) -> frozenset[str]:
        """Values of the group that the product is computed from."""
        own = {name: node for node in self.group.nodes for name in node.outputs}
        found: set[str] = set()
        waiting = [self.left.name, self.right.name]
        while waiting:
            name = waiting.pop()
            if name in own and name not in found:
                found.add(name)
                waiting += [i for i in own[name].inputs if i is not None]
        return frozenset(found)

    @property
    def lead(self) -> tuple[Size, ...]:
        return self.result.shape[:-2]

    @cached_property
    def flattened(self) -> bool:
        """One right operand for the whole batch: its rows are rows."""
        return all(size == ONE for size in self.right.shape[:-2])

    @property
    def batch(self) -> Size:
        return ONE if self.flattened else product(self.lead)

    @property
    def rows(self) -> Size:
        inner = self.result.shape[-2]
        return product(self.lead) * inner if self.flattened else inner

    @property
    def columns(self) -> Size:
        return self.result.shape[-1]

    @property
    def depth(self) -> Size:
        return self.left.shape[-1]

    @property
    def flops(self) -> int:
        return 2 * self.batch.value * self.rows.value * self.columns.value * self.depth.value

    # -- indices -----------------------------------------------------------------------------------

    def result_index(self, batch: Expr, row: Expr, column: Expr) -> Index:
        if self.flattened:
            return (*unflat(row, self.result.shape[:-1]), column)
        return (*unflat(batch, self.lead), row, column)

    def left_index(self, batch: Expr, row: Expr, k: Expr) -> Index:
        whole = self.result_index(batch, row, Expr())[:-1]
        return (*self._broadcast(whole[:-1], self.left), whole[-1], k)

    def right_index(self, batch: Expr, k: Expr, column: Expr) -> Index:
        lead = self.result_index(batch, Expr(), Expr())[:-2]
        return (*self._broadcast(lead, self.right), k, column)

    def _broadcast(self, lead: Index, operand: Value) -> Index:
        own = operand.shape[:-2]
        skip = len(lead) - len(own)
        return tuple(Expr() if size == ONE else at for at, size in zip(lead[skip:], own, strict=True))

    def operand_batch(self, operand: Value, batch: Expr) -> Expr:
        """Which of an operand's own matrices a batch needs."""
        if self.flattened:
            return Expr()
        lead = unflat(batch, self.lead)
        return flat(self._broadcast(lead, operand), operand.shape[:-2])

    # -- questions ---------------------------------------------------------------------------------

    def stored(self, name: str, index: Index) -> tuple[Value, Index] | None:
        """The value in memory that this one is a view of, and where in it; ``None`` where it is computed."""
        own = {output: node for node in self.group.nodes for output in node.outputs}
        while name in own:
            node = own[name]
            if node.op != "view":
                return None
            name, index = str(node.inputs[0]), through_view(self.graph, node, index)
        return self.graph.value(name), index

    def behind(self, operand: Value) -> tuple[list[Node], list[Value]]:
        """The group's nodes that an operand is made by, and what they read."""
        own = {output: node for node in self.group.nodes for output in node.outputs}
        nodes: dict[int, Node] = {}
        sources: dict[str, Value] = {}
        waiting = [operand.name]
        while waiting:
            name = waiting.pop()
            node = own.get(name)
            if node is None:
                sources[name] = self.graph.value(name)
            elif id(node) not in nodes:
                nodes[id(node)] = node
                waiting += [i for i in node.inputs if i is not None]
        return list(nodes.values()), list(sources.values())

    def computes(self, operand: Value) -> bool:
        """Whether an operand is not read as it lies."""
        return any(node.op != "view" for node in self.behind(operand)[0])

    def contiguous_along(self, name: str, index: Index, symbol: str) -> bool:
        """Whether one step of a loop index is one step in memory, for the largest thing that is read."""
        source = self._main_source(name, index)
        return source is not None and address(*source).stride_of(symbol) == ONE

    @cached_property
    def depth_contiguous(self) -> bool:
        """Whether the summed dimension is the contiguous one of both operands."""
        batch, row, column, k = (
            loop_index(name, size)
            for name, size in (
                ("batch", self.batch), ("row", self.rows), ("column", self.columns), ("k", self.depth),
            )
        )  # fmt: skip
        left, right = self.left_index(batch, row, k), self.right_index(batch, k, column)
        return self.contiguous_along(self.left.name, left, "k") and self.contiguous_along(
            self.right.name, right, "k"
        )

    def _main_source(self, name: str, index: Index) -> tuple[Value, Index] | None:
        own = {output: node for node in self.group.nodes for output in node.outputs}
        while name in own:
            node = own[name]
            if node.op == "view":
                name, index = str(node.inputs[0]), through_view(self.graph, node, index)
                continue
            shape = self.graph.result(node).shape
            same = [i for i in node.inputs if i is not None and self.graph.value(i).shape == shape]
            if node.op not in ("pointwise", "where", "triangle") or not same:
                return None
            name = same[0]
        return self.graph.value(name), index

    def held(self, operand: Value) -> Value | None:
        """The one weight that an operand is computed from; ``None`` where it depends on anything else."""
        _, sources = self.behind(operand)
        return sources[0] if len(sources) == 1 and sources[0].origin is Origin.PARAMETER else None

    def triangle(self, name: str, index: Index) -> tuple[Expr, Expr, bool, str] | None:
        """Row, column, upper and diagonal of a triangle that this operand is cut to, seen through views."""
        own = {output: node for node in self.group.nodes for output in node.outputs}
        while name in own and own[name].op == "view":
            node = own[name]
            name, index = str(node.inputs[0]), through_view(self.graph, node, index)
        node = own.get(name)
        if node is None or node.op != "triangle":
            return None
        return index[-2], index[-1], bool(node["upper"]), as_size(node["diagonal"]).code()
