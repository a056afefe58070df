"""Products of gathered rows: gathered rows of a product.

A layer on the edges of a graph multiplies ``cat(e, x[senders], x[receivers])`` by one matrix, and with it the
row of every node once for each of its edges. Each operand has rows of the matrix to itself, and a product
commutes with taking rows::

    cat(e, x[s], x[r]) @ W  =  e @ W_e + (x @ W_s)[s] + (x @ W_r)[r]

So nodes are multiplied once, their gathered rows are never stored, and the sum goes into the epilogue of what
is left of the product. Gathered rows that stand alone are multiplied in the same way.

What is gathered is as wide as the result then. In 16-bit programs the terms of a sum are kept in fp32: three
terms that were rounded would err more than the one sum that the program rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from egg.expert.algebra.rewrite import Draft, Rewrite, Rule, made_by, only_reader
from egg.expert.graph import FLOATS, HALF, Graph, Node, Value
from egg.expert.sizes import Size, product

OFTEN = 2
"""How many rows are gathered, at least, for each row that there is."""
LEAST_DEPTH = 128
"""Columns of gathered rows: with fewer the product takes hardly longer than gathering its result."""
WIDEST = {True: 2, False: 4}
"""How many times as many columns the result may have, in 16-bit programs (where a product costs less beside
what is gathered) and in others."""


@dataclass(frozen=True)
class _Part:
    """An operand, and where the rows of the matrix that are its own begin."""

    name: str
    start: Size
    depth: Size
    gather: Node | None
    """What takes its rows, where that is better done behind the product."""


def gathered_product(graph: Graph, node: Node) -> Rewrite | None:
    """Multiplies what rows are taken from, where that is much smaller."""
    if node.op != "matmul":
        return None
    left, right, made = graph.value(str(node.inputs[0])), graph.value(str(node.inputs[1])), graph.result(node)
    if right.rank != 2 or made.dtype not in FLOATS or {left.dtype, right.dtype} != {made.dtype}:
        return None
    parts = _parts(graph, left, made.shape[-1])
    taken, rest = [p for p in parts if p.gather], [p for p in parts if not p.gather]
    depth = _depth(rest)
    if not taken or (rest and (depth is None or rest[-1].start != _sum(rest[0].start, _depth(rest[:-1])))):
        return None
    draft = Draft(graph, node)
    if len(parts) == 1:
        _take(draft, parts[0], _multiplied(draft, parts[0], right.name, *node.inputs[2:]))
        return draft.done()
    terms = [_term(draft, right, part) for part in taken]
    if depth is not None and rest:
        name = rest[0].name
        if len(rest) > 1:
            shape = (*left.shape[:-1], depth)
            name = draft.add("cat", [p.name for p in rest], shape, "joined", dim=left.rank - 1)
        inputs = [name, _rows(draft, right, rest[0].start, depth), *node.inputs[2:]]
        terms.insert(0, _wide(draft, draft.add("matmul", inputs, made.shape, "rest")))
    else:
        terms += [_wide(draft, bias) for bias in node.inputs[2:] if bias is not None]
    _add_up(draft, terms, made)
    return draft.done()


def _parts(graph: Graph, left: Value, columns: Size) -> list[_Part]:
    """What lies side by side along the depth, as far as it has an expression where each begins."""
    joined, names = made_by(graph, left.name, "cat"), [left.name]
    if joined is not None and joined["dim"] == left.rank - 1 and only_reader(graph, left.name):
        names = [str(name) for name in joined.inputs]
    parts: list[_Part] = []
    for name in names:
        start = _depth(parts)
        if start is None:
            return []
        parts.append(_Part(name, start, graph.value(name).shape[-1], _gather(graph, name, columns)))
    return parts


def _gather(graph: Graph, name: str, columns: Size) -> Node | None:
    """What takes these rows, where a product before it saves enough."""
    node = made_by(graph, name, "gather")
    if (
        node is None
        or node["how"] not in ("index_select", "embedding")
        or set(node.attributes) != {"how", "dim"}
    ):
        return None
    source, rows = graph.value(str(node.inputs[0])), graph.value(name)
    if source.rank < 2 or node["dim"] == source.rank - 1:
        return None
    depth = rows.shape[-1].value
    if depth < LEAST_DEPTH or columns.value > WIDEST[rows.dtype in HALF] * depth:
        return None
    often = product(rows.shape[:-1]).value >= OFTEN * product(source.shape[:-1]).value
    return node if often else None


def _depth(parts: Sequence[_Part]) -> Size | None:
    """How many rows of the matrix they have in all."""
    whole: Size | None = Size(0)
    for part in parts:
        whole = _sum(whole, part.depth)
    return whole


def _sum(a: Size | None, b: Size | None) -> Size | None:
    """Where both are multiples of one size."""
    if a is None or b is None or (a.number and b.number and a.factors != b.factors):
        return None
    return Size(a.number + b.number, a.factors or b.factors)


def _rows(draft: Draft, matrix: Value, start: Size, depth: Size) -> str:
    """Some rows of the matrix; where it is a weight that lies transposed, that weight's columns, turned."""
    turned = made_by(draft.graph, matrix.name, "view")
    steps = {"how": "slice", "steps": (1, 1)}
    if turned is None or turned["how"] != "permute" or tuple(turned["dims"]) != (1, 0):
        cut = {**steps, "starts": (start, Size(0))}
        return draft.add("view", [matrix.name], (depth, matrix.shape[1]), "matrix", **cut)
    weight = str(turned.inputs[0])
    cut = {**steps, "starts": (Size(0), start)}
    columns = draft.add("view", [weight], (matrix.shape[1], depth), "columns", **cut)
    return draft.add("view", [columns], (depth, matrix.shape[1]), "matrix", how="permute", dims=(1, 0))


def _multiplied(draft: Draft, part: _Part, matrix: str, *bias: str | None) -> str:
    """The product of what the part's rows are taken from."""
    assert part.gather is not None
    source = draft.value(str(part.gather.inputs[0]))
    shape = (*source.shape[:-1], draft.value(matrix).shape[1])
    return draft.add("matmul", [source.name, matrix, *bias], shape, "product")


def _take(draft: Draft, part: _Part, name: str) -> str:
    """The same rows of ``name``."""
    assert part.gather is not None
    value, shape = draft.value(name), draft.graph.value(part.name).shape[:-1]
    inputs = [name, *part.gather.inputs[1:]]
    return draft.add(
        "gather", inputs, (*shape, value.shape[-1]), "rows", value.dtype, **part.gather.attributes
    )


def _term(draft: Draft, matrix: Value, part: _Part) -> str:
    own = _rows(draft, matrix, part.start, part.depth)
    return _take(draft, part, _wide(draft, _multiplied(draft, part, own)))


def _wide(draft: Draft, name: str) -> str:
    value = draft.value(name)
    if value.dtype not in HALF:
        return name
    return draft.add("pointwise", [name], value.shape, "wide", "float32", fn="cast", scalars=())


def _add_up(draft: Draft, terms: Sequence[str], made: Value) -> None:
    total, *others = terms
    for term in others:
        total = draft.add("pointwise", [total, term], made.shape, "sum", "float32", fn="add", scalars=())
    if made.dtype in HALF:
        draft.add("pointwise", [total], made.shape, "cast", fn="cast", scalars=())


RULES: tuple[Rule, ...] = (gathered_product,)
