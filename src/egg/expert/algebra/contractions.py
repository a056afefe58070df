"""Products of matrices that are spelled as a multiplication and a sum.

``(a[..., :, None, :] * b[..., None, :, :]).sum(-1)`` broadcasts two tensors against each other and adds up a
dimension that both have: a product of matrices, written without ``matmul`` to keep the order of dimensions
readable (scans over chunks, bilinear scores, mixtures). Element by element it takes a pass over the broadcast
product, which is as many times larger than its operands as the other one has rows.

Every dimension of the broadcast product is one of these, by which operands have it: summed and in both (the
depth), in both (the batch), in one of them (rows or columns), in none. An operand that only repeats itself
along a dimension does not have it, even if an expansion made it as long: heads of one group share a product.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from egg.expert.algebra.rewrite import Draft, Rewrite, Rule, made_by, only_reader
from egg.expert.graph import FLOATS, Graph, Node, Value
from egg.expert.sizes import ONE, Size, product

LEAST = 16
"""Rows, columns and depth of a product: with fewer of them a pass over the broadcast product, which fuses
with what surrounds it, takes no longer."""

Shape = tuple[Size, ...]


@dataclass(frozen=True)
class _Factor:
    """One operand of the multiplication: what it is read from, and its shape with a one where it has no
    dimension of its own."""

    source: str
    shape: Shape

    def has(self, dim: int) -> bool:
        return self.shape[dim] != ONE


def contraction(graph: Graph, node: Node) -> Rewrite | None:
    """A sum of a broadcast product along dimensions that both factors have is a product of matrices."""
    spread = made_by(graph, node.inputs[0], "pointwise") if _is_sum(node) else None
    if spread is None or spread["fn"] != "mul" or len(spread.inputs) != 2 or any(spread["scalars"]):
        return None
    whole, result = graph.result(spread), graph.result(node)
    operands = [graph.value(str(name)) for name in spread.inputs]
    if result.dtype not in FLOATS or {whole.dtype, *(v.dtype for v in operands)} != {result.dtype}:
        return None
    if not only_reader(graph, spread.output):
        return None
    left, right = (_narrowed(graph, value, whole.rank) for value in operands)
    dims = range(whole.rank)
    summed = [d for d in dims if d in {dim % whole.rank for dim in node["dims"]} and whole.shape[d] != ONE]
    if not summed or not all(left.has(d) and right.has(d) for d in summed):
        return None
    batch = [d for d in dims if d not in summed and left.has(d) and right.has(d)]
    rows = [d for d in dims if left.has(d) and not right.has(d)]
    columns = [d for d in dims if right.has(d) and not left.has(d)]
    if any(_extent(whole, group) < LEAST for group in (rows, columns, summed)):
        return None
    if rows[-1] > columns[-1]:  # the other way round the result lies as the sum's
        left, right, rows, columns = right, left, columns, rows
    draft = Draft(graph, node)
    first = _matrices(draft, left, batch, rows, summed)
    second = _matrices(draft, right, batch, summed, columns)
    lead = tuple(whole.shape[d] for d in batch)
    shape = (*lead, _size(whole, rows), _size(whole, columns))
    made = draft.add("matmul", [first, second], shape, "product")
    _in_order(draft, made, [*batch, *rows, *columns], whole)
    return draft.done()


def _is_sum(node: Node) -> bool:
    return node.op == "reduce" and node["fn"] == "sum"


def _size(value: Value, dims: Iterable[int]) -> Size:
    return product(value.shape[d] for d in dims)


def _extent(value: Value, dims: Iterable[int]) -> int:
    return _size(value, dims).value


def _matrices(
    draft: Draft, factor: _Factor, batch: Sequence[int], rows: Sequence[int], columns: Sequence[int]
) -> str:
    """A factor as matrices: its own dimensions in this order, rows and columns one dimension each."""
    order = [*batch, *rows, *columns]
    own = [d for d in range(len(factor.shape)) if factor.has(d)]
    name = draft.add("view", [factor.source], tuple(factor.shape[d] for d in own), "factor", how="reshape")
    if own != order:
        shape = tuple(factor.shape[d] for d in order)
        places = tuple(own.index(d) for d in order)
        name = draft.add("view", [name], shape, "turned", how="permute", dims=places)
    sides = [product(factor.shape[d] for d in side) for side in (rows, columns)]
    shape = (*(factor.shape[d] for d in batch), *sides)
    return draft.add("view", [name], shape, "matrices", how="reshape")


def _in_order(draft: Draft, name: str, dims: Sequence[int], whole: Value) -> None:
    """What the product made, with dimensions as the sum has them, repeated along those of neither factor."""
    node, result, order = draft.node, draft.graph.result(draft.node), sorted(dims)
    name = draft.add("view", [name], tuple(whole.shape[d] for d in dims), "apart", how="reshape")
    if order != list(dims):
        shape = tuple(whole.shape[d] for d in order)
        places = tuple(dims.index(d) for d in order)
        name = draft.add("view", [name], shape, "ordered", how="permute", dims=places)
    gone = {dim % whole.rank for dim in node["dims"]}
    kept = [d for d in range(whole.rank) if node["keepdim"] or d not in gone]
    narrow = tuple(whole.shape[d] if d in order else ONE for d in kept)
    name = draft.add("view", [name], narrow, "result", how="reshape")
    if narrow != result.shape:
        draft.add("view", [name], result.shape, "repeated", how="expand")


def _narrowed(graph: Graph, value: Value, rank: int) -> _Factor:
    """An operand read before it was repeated, where it is an expansion or a reshape of one."""
    plain = _Factor(value.name, _padded(value.shape, rank))
    view = made_by(graph, value.name, "view")
    reshaped = view is not None and view["how"] == "reshape"
    spread = made_by(graph, view.inputs[0], "view") if view is not None and reshaped else view
    if spread is None or spread["how"] != "expand":
        return plain
    source, many = graph.value(str(spread.inputs[0])), graph.result(spread).shape
    one = _padded(source.shape, len(many))
    repeats = [small == ONE and size != ONE for small, size in zip(one, many, strict=True)]
    shape = _through_reshape(many, repeats, value.shape)
    return plain if shape is None else _Factor(source.name, _padded(shape, rank))


def _padded(shape: Sequence[Size], rank: int) -> Shape:
    return (*(ONE,) * (rank - len(shape)), *shape)


def _through_reshape(source: Shape, repeats: Sequence[bool], target: Shape) -> Shape | None:
    """The target of a reshape with ones where its source is repeated; ``None`` where a dimension mixes what
    is repeated with what is not."""
    found: list[Size] = []
    for ones, others in _segments(source, target):
        own = [repeats[d] for d in ones if source[d] != ONE]
        if any(own) and not all(own):
            return None
        found += [ONE if any(own) else target[d] for d in others]
    return tuple(found) if len(found) == len(target) else None


def _segments(source: Shape, target: Shape) -> Iterable[tuple[list[int], list[int]]]:
    """Dimensions next to each other that a reshape turns into one another, the fewest at a time."""
    i = j = 0
    while i < len(source) or j < len(target):
        ones, others = list[int](), list[int]()
        a = b = ONE
        while (not ones and not others) or a != b:
            if i < len(source) and (a.value <= b.value or j == len(target)):
                a, i = a * source[i], i + 1
                ones.append(i - 1)
            elif j < len(target):
                b, j = b * target[j], j + 1
                others.append(j - 1)
            else:
                return
        yield ones, others


RULES: tuple[Rule, ...] = (contraction,)
