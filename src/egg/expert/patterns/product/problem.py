"""The product of a group as three loops: rows, columns and the summed dimension, with an index per operand.

Whatever the rank of the operands, a product is a batch of ``M x K`` by ``K x N``. Where the right operand is
one matrix for all of the batch, the leading dimensions of the left one are rows like any other, so there is
no batch at all. What stands before the product in the group is read through; what follows is the tail.

An operand that is joined from pieces along the summed dimension cuts that dimension into *spans*: the product
is a sum of products, one for each piece, and each of them reads one tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import ceil

from egg.expert.emit.host import Host
from egg.expert.emit.reader import address, through_view
from egg.expert.graph import FLOATS, Graph, Node, Origin, Value
from egg.expert.index import Expr, Index, Negative, as_expr, flat, loop_index, unflat
from egg.expert.parts import Group, Unfit, WithBias
from egg.expert.sizes import ONE, Size, as_size, product

MOST_SPANS = 4
"""Pieces of an operand that have a loop each; more of them are looked for element by element."""
RUN = 64
"""Elements that lie side by side, or a multiple of them, from which on loads are as wide as can be."""
STEP, MOST_STEPS = 64, 4 / 3
"""Elements of the summed dimension in a usual step, and how many times more steps the pieces may take."""
LONGEST_STEP = 128
"""Elements of the summed dimension in one step, at most."""
OWN_NAMES: Mapping[str, str] = {name: name for name in ("batch", "row", "column", "k")}
"""What loops are called where no kernel names them."""


@dataclass(frozen=True)
class Span:
    """A stretch of the summed dimension."""

    start: Expr
    size: Size

    @property
    def rank(self) -> tuple[int, int]:
        """Those first that are never a single step, those last that always are: the compiler unrolls a
        single step, and its tiles take room beside those of a loop behind it."""
        if self.size.factors:
            return 1, -self.size.value
        return (0 if self.size.value > LONGEST_STEP else 2), -self.size.value

    def may_be_step(self, k: int) -> bool:
        """Whether blocks of ``k`` cover it in one step, at some size."""
        return bool(self.size.factors) or self.size.value <= k

    def may_be_loop(self, k: int) -> bool:
        """Whether they take several, at some size."""
        return bool(self.size.factors) or self.size.value > k


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
            if value.dtype not in FLOATS and not found.whole_numbers:
                raise Unfit(f"a product of {value.dtype}")
            if found.whole_numbers and found.computes(value):
                raise Unfit("tiles of eight-bit numbers that are computed on the way: a pass makes them once")
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
        """Another object than the left one, also where a value is multiplied with itself."""
        return replace(self.operand(1)) if self.operand(1) is self.left else self.operand(1)

    @property
    def whole_numbers(self) -> bool:
        """Whether it multiplies numbers of eight bits and adds them up in 32, all of them exactly."""
        return (self.left.dtype, self.right.dtype, self.result.dtype) == ("int8", "int8", "int32")

    @property
    def before(self) -> frozenset[str]:
        """Values of the group that the product is computed from."""
        own = self._own
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

    def operand_index(self, operand: Value, span: Span, names: Mapping[str, str] = OWN_NAMES) -> Index:
        """An operand's index within a span; ``names``: what the loops over ``batch``, ``row``, ``column``
        and ``k`` are called."""
        batch = loop_index(names["batch"], self.batch)
        k = loop_index(names["k"], span.size) + span.start
        if operand is self.left:
            return self.left_index(batch, loop_index(names["row"], self.rows), k)
        return self.right_index(batch, k, loop_index(names["column"], self.columns))

    def operand_batch(self, operand: Value, batch: Expr) -> Expr:
        """Which of an operand's own matrices a batch needs."""
        if self.flattened:
            return Expr()
        lead = unflat(batch, self.lead)
        return flat(self._broadcast(lead, operand), operand.shape[:-2])

    # -- questions ---------------------------------------------------------------------------------

    @cached_property
    def _own(self) -> Mapping[str, Node]:
        """The nodes of the group by what they make."""
        return {output: node for node in self.group.nodes for output in node.outputs}

    def made_by(self, name: str) -> Node | None:
        """The node of the group that makes a value; ``None`` where it lies in memory."""
        return self._own.get(name)

    def stored(self, name: str, index: Index) -> tuple[Value, Index] | None:
        """The value in memory that this one is a view or a piece of, and where in it; ``None`` where it is
        computed, or where the index reaches several pieces."""
        own = self._own
        while name in own:
            node = own[name]
            if node.op == "view":
                name, index = str(node.inputs[0]), through_view(self.graph, node, index)
            elif node.op == "cat" and (piece := self.piece(node, index)) is not None:
                name, index = piece
            else:
                return None
        return self.graph.value(name), index

    def piece(self, node: Node, index: Index) -> tuple[str, Index] | None:
        """The one piece of a concatenation that an index lies in, and where in it."""
        dim, start = int(node["dim"]), Expr()
        for name in map(str, node.inputs):
            size = self.graph.value(name).shape[dim]
            inside = index[dim] - start
            if not inside.may_be_negative() and inside.below(size):
                return name, (*index[:dim], inside, *index[dim + 1 :])
            start = start + size
        return None

    @property
    def whole(self) -> Span:
        """All of the summed dimension."""
        return Span(Expr(), self.depth)

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """The summed dimension, cut where the pieces meet that an operand is joined from; short ones last."""
        for operand in (self.left, self.right):
            index = self.operand_index(operand, self.whole)
            sizes = self._joined(operand.name, index, loop_index("k", self.depth))
            if 1 < len(sizes) <= MOST_SPANS and self._pays(sizes):
                starts = accumulate(map(as_expr, sizes[:-1]), initial=Expr())
                spans = [Span(*both) for both in zip(starts, sizes, strict=True)]
                return tuple(sorted(spans, key=lambda span: span.rank))
        return (self.whole,)

    def _pays(self, sizes: Sequence[Size]) -> bool:
        """Whether a loop for each piece takes few more steps than one for all: each ends with a block of its
        own, which is mostly empty where a piece is short (the halves of a rotary embedding)."""
        steps = sum(ceil(size.value / STEP) for size in sizes)
        filled = steps <= MOST_STEPS * ceil(self.depth.value / STEP)
        return filled and all(min(size.values) > 0 for size in sizes)

    def _joined(self, name: str, index: Index, k: Expr) -> tuple[Size, ...]:
        """Sizes of the pieces that a value is joined from along ``k``, seen through what works element by
        element; empty where it is not joined."""
        node = self._own.get(name)
        if node is None:
            return ()
        if node.op == "view":
            try:
                return self._joined(str(node.inputs[0]), through_view(self.graph, node, index), k)
            except (Unfit, Negative):
                return ()
        if node.op == "cat":
            dim = int(node["dim"])
            sizes = (self.graph.value(str(piece)).shape[dim] for piece in node.inputs)
            return tuple(sizes) if index[dim] == k else ()
        if node.op == "pointwise":
            shape = self.graph.result(node).shape
            same = (i for i in node.inputs if i is not None and self.graph.value(i).shape == shape)
            return next(filter(None, (self._joined(i, index, k) for i in same)), ())
        return ()

    def behind(self, operand: Value) -> tuple[list[Node], list[Value]]:
        """The group's nodes that an operand is made by, and what they read."""
        own = self._own
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

    def computes(self, operand: Value, spans: bool = True) -> bool:
        """Whether an operand is not read as it lies; without ``spans`` in one loop over all it is joined
        from."""
        others = [node for node in self.behind(operand)[0] if node.op != "view"]
        if not others or not spans or any(node.op != "cat" for node in others):
            return bool(others)
        return any(
            self.stored(operand.name, self.operand_index(operand, span)) is None for span in self.spans
        )

    def contiguous_along(self, name: str, index: Index, symbol: str) -> bool:
        """Whether one step of a loop index is one step in memory, for the largest thing that is read."""
        source = self._main_source(name, index)
        return source is not None and address(*source).stride_of(symbol) == ONE

    def in_runs_along(self, name: str, index: Index, symbol: str) -> bool:
        """Whether steps of a loop index are steps in memory within long runs: columns of many matrices that
        lie one behind the other (``column // width`` says of which, ``column % width`` where in it)."""
        source = self._main_source(name, index)
        terms = [term for term in address(*source).terms if symbol in term[0].symbols()] if source else []
        near = [atom.modulus for atom, factor in terms if factor == ONE]
        if len(terms) < 2 or len(near) != 1 or near[0] is None or near[0].value % RUN:
            return False
        width = near[0]
        return all(
            atom.base is not None
            and (atom.modulus == width and atom.divisor == ONE if factor == ONE else atom.divisor.over(width))
            for atom, factor in terms
        )

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
        own = self._own
        while name in own:
            node = own[name]
            if node.op == "view":
                name, index = str(node.inputs[0]), through_view(self.graph, node, index)
                continue
            if node.op == "cat" and (piece := self.piece(node, index)) is not None:
                name, index = piece
                continue
            if node.op == "pad":
                index = tuple(at - before for at, before in zip(index, node["before"], strict=True))
                name = str(node.inputs[0])
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
        own = self._own
        while name in own and own[name].op == "view":
            node = own[name]
            name, index = str(node.inputs[0]), through_view(self.graph, node, index)
        node = own.get(name)
        if node is None or node.op != "triangle":
            return None
        return index[-2], index[-1], bool(node["upper"]), as_size(node["diagonal"]).code()
