"""How a tile of an operand comes into shared memory: by itself, or through registers.

A tile that is read as it lies has a place in shared memory for every stage of the loop. One that is computed
has places for what it is computed from, for every stage but the last, and one more for itself: a product of
``silu(a) * b`` keeps two tiles a stage where ``a`` alone would be one. Of eleven kernels compiled for an H200
this gave the compiler's own figure for ten, and 4 KB more for one.

Asynchronous copies move four bytes at least. Rows of 16-bit numbers that begin at odd places (a row of 63)
are loaded number by number, into registers, as if they were computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from egg.expert.emit.reader import address, through_view
from egg.expert.graph import HALF, Node, Value
from egg.expert.index import UNIT, Expr, Index, Negative
from egg.expert.parts import Unfit
from egg.expert.patterns.product.follow import long_function
from egg.expert.patterns.product.problem import Problem, Span
from egg.expert.patterns.product.words import shared_words
from egg.expert.sizes import ONE, Size

ODD_ROWS = 6.0
"""How much longer a step takes with fp32 operands whose rows are no multiples of 16 bytes, which are loaded
number by number for every tile: 16 products of 80 x 201 with 201 x 3000 took 255 us on an H200."""
LONG_PROLOGUE = 2.0
"""The same where tiles compute an fp32 operand with an exponential or the like: 1536 products of 128 x 64
with 64 x 64 took 166 us."""


@dataclass(frozen=True)
class Buffers:
    """Shared memory of the loop, in elements of the operands."""

    left: float | None = None
    """Tiles that one of the left operand is computed from, as wide as its own; ``None``: it is not
    computed."""
    right: float | None = None
    spans: tuple[Span, ...] = ()

    def elements(self, m: int, n: int, k: int, stages: int) -> int:
        """Of all stages, for tiles of ``m x k`` and ``k x n``."""
        sides = ((m, self.left), (n, self.right))
        further = m + n if self._step_before_loop(k) else 0
        return int(k * (sum(own * _stages(loads, stages) for own, loads in sides) + further))

    def _step_before_loop(self, k: int) -> bool:
        """Whether a span of one step may stand before a loop, whose tiles then lie beside its own."""
        behind = zip(self.spans, (self.spans[at + 1 :] for at in range(len(self.spans))), strict=True)
        return any(span.may_be_step(k) and any(s.may_be_loop(k) for s in later) for span, later in behind)


def _stages(loads: float | None, stages: int) -> float:
    return stages if loads is None else (stages - 1) * loads + 1


def buffers(problem: Problem) -> Buffers:
    """Of operands that are read where they lie, through what stands before them."""
    left, right = (_loads(problem, side) for side in (problem.left, problem.right))
    return Buffers(left, right, problem.spans)


def _loads(problem: Problem, operand: Value) -> float | None:
    """Tiles that one of a computed operand is made from, the most of any span."""
    if not problem.computes(operand):
        return None
    words = shared_words(problem) if operand is problem.right else None
    own = "row" if operand is problem.left else "column"
    most = 1.0
    for span in problem.spans:
        found = set(_reached(problem, operand.name, problem.operand_index(operand, span)))
        whole = [
            name for name, index in found if {own, "k"} <= frozenset[str]().union(*map(Expr.symbols, index))
        ]
        tiles = sum(_item(problem.graph.value(name)) / _item(operand) for name in whole)
        most = max(most, tiles / (words.each if words is not None else 1))
    return most


def _item(value: Value) -> float:
    """Bytes of an element."""
    return value.bytes / value.elements.value


def _reached(problem: Problem, name: str, index: Index) -> Iterator[tuple[str, Index]]:
    """What an element is computed from, and where that lies; what an operator moves in another way counts
    as read at the same place."""
    node = problem.made_by(name)
    if node is None:
        yield name, index
        return
    try:
        given = list(_operands(problem, node, index))
    except (Unfit, Negative):
        given = []
    if not given:
        yield from ((str(one), index) for one in node.inputs if one is not None)
    for one, at in given:
        yield from _reached(problem, one, at)


def _operands(problem: Problem, node: Node, index: Index) -> Iterator[tuple[str, Index]]:
    """The operands of a node with the indices that it reads them at; none where those are not known."""
    shape = problem.graph.result(node).shape
    if node.op == "view":
        yield str(node.inputs[0]), through_view(problem.graph, node, index)
    elif node.op == "cat" and (piece := problem.piece(node, index)) is not None:
        yield piece
    elif node.op in ("pointwise", "where"):
        for name in filter(None, node.inputs):
            own = problem.graph.value(name).shape
            fitted = zip(index[len(shape) - len(own) :], own, strict=True)
            yield name, tuple(Expr() if size == ONE else at for at, size in fitted)


def by_number(problem: Problem, operand: Value, span: Span) -> bool:
    """Whether a tile of 16-bit numbers in memory is loaded number by number: rows begin at odd places."""
    if operand.dtype not in HALF:
        return False
    stored = problem.stored(operand.name, problem.operand_index(operand, span))
    if stored is None:
        return False
    place = address(*stored)
    own = "row" if operand is problem.left else "column"
    steps = [place.stride_of(name) for name in ("batch", own, "k")]
    begins = sum(factor.value for atom, factor in place.terms if atom == UNIT)
    if ONE not in steps:
        return False
    steps.remove(ONE)
    return begins % 2 == 1 or any(isinstance(step, Size) and step.value % 2 for step in steps)


def fp32_loads(problem: Problem) -> float:
    """How much longer a step takes because of how fp32 operands come into their tiles."""
    operands = (problem.left, problem.right)
    behind = [(operand, *problem.behind(operand)) for operand in operands]
    odd = any(_odd_rows(source, operand) for operand, _, sources in behind for source in sources)
    long = any(long_function(node) for _, nodes, _ in behind for node in nodes)
    return (ODD_ROWS if odd else 1.0) * (LONG_PROLOGUE if long else 1.0)


def _odd_rows(source: Value, operand: Value) -> bool:
    """Whether an operand is read from rows that begin at other places than multiples of 16 bytes."""
    steps = (stride.value for stride, size in zip(source.stride, source.shape, strict=True) if size != ONE)
    whole = source.elements.value >= operand.elements.value
    return source.dtype == "float32" and whole and any(step > 1 and step % 4 for step in steps)
