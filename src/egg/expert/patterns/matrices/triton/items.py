"""Reading values of small matrices inside a kernel whose threads have one item of the batch each.

The rows and columns at which such a kernel asks are numbers, so every element is a variable: views,
concatenations and element-wise operators cost no index arithmetic and no selects, and what is asked twice is
there. Small products and sums are written out. A factorisation is computed as a whole when its first element
is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product as every

from egg.expert.emit.reader import Reader, fitted, pointer_stem
from egg.expert.graph import Node, Value
from egg.expert.index import Expr, Index, as_expr, flat
from egg.expert.parts import Unfit
from egg.expert.patterns.matrices.triton.folded import folded
from egg.expert.patterns.matrices.triton.tiles import Tile
from egg.expert.patterns.matrices.triton.unrolled import ZERO, Matrix, Unrolled, identity
from egg.expert.sizes import ONE, Size

MOST_ELEMENTS = 64
"""Of an item of one value: registers of a thread."""
LONGEST_SUM = 16
"""Terms of a sum that is written out."""
MOST_OPERATIONS = 2400
"""Of a kernel: the compiler takes time with their square, 4 s for 2600 of them, and a thread has registers
for what they keep (223 of 255 there)."""
JOINED = {"sum": "add", "mean": "add", "max": "maximum", "min": "minimum", "prod": "mul",
          "norm": "add"}  # fmt: skip
"""Reductions, and the operator that joins two elements."""
Made = dict[tuple[int, ...], str]
"""What a factorisation computed, by its result and the row and column there."""
Failed = Callable[[str, str, Expr | None], None]


@dataclass
class Items(Reader):
    """A reader of small matrices; ``failed`` is told of codes of factorisations that may fail."""

    batch: Size = ONE
    failed: Failed | None = None
    _tiles: dict[str, dict[Index, str]] = field(default_factory=dict)
    """By value: names of the elements of a thread's item."""
    _made: dict[tuple[str, Index], Made] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.write = Unrolled(self.body)

    def _computed(self, name: str, index: Index, guards: tuple[str, ...]) -> str:
        node = None if name in self.bound else self._producers.get(name)
        if len(self.body.lines) > MOST_OPERATIONS:
            raise Unfit(f"more than {MOST_OPERATIONS} operations")
        if node is not None and node.op in FACTORED:
            return self._factored(node, name, index)
        if node is not None and node.op == "matmul":
            return self._product(node, index, guards)
        if node is not None and node.op == "reduce":
            return self._reduced(node, index, guards)
        if node is not None and node.op == "pointwise":
            return self._element(node, index, guards)
        if node is not None and node.op == "where":
            return self._chosen(node, index, guards)
        if node is not None and node.op == "gather" and node["how"] == "gather":
            return self._gathered(node, index, guards)
        return super()._computed(name, index, guards)

    def _element(self, node: Node, index: Index, guards: tuple[str, ...]) -> str:
        """Of an identity or a mask by places, whose rows and columns are numbers here, every element is one:
        Triton has no functions of those, and what is multiplied by zero or one need not be."""
        names = [str(name) for name in node.inputs if name is not None]
        texts = [self._operand(name, index, guards) for name in names]
        found = folded(node["fn"], texts, node.get("scalars", ()), self.graph.result(node).dtype)
        return super()._pointwise(node, index, guards) if found is None else found

    def _chosen(self, node: Node, index: Index, guards: tuple[str, ...]) -> str:
        """Where a mask by places chooses, only what it chooses is computed."""
        condition, yes, no = map(str, node.inputs)
        match self._operand(condition, index, guards):
            case "True":
                return self._operand(yes, index, guards)
            case "False":
                return self._operand(no, index, guards)
        return super()._where(node, index, guards)

    def _gathered(self, node: Node, index: Index, guards: tuple[str, ...]) -> str:
        """From a place that is a number here: an element of a diagonal."""
        source, dim = str(node.inputs[0]), node["dim"]
        place = self._operand(str(node.inputs[1]), index, guards)
        if not place.isdigit():
            raise Unfit("an element of a small matrix at a place that varies")
        return self.read(source, (*index[:dim], as_expr(int(place)), *index[dim + 1 :]), guards)

    def _load(self, value: Value, index: Index, guards: tuple[str, ...]) -> str:
        """From a tile of whole items where it is an element of the thread's own item."""
        if value.name not in self._tiles:
            tile = Tile.of(value, self.batch) if self.batch != ONE and value.dtype == "float32" else None
            whole = tile is not None and 1 < tile.count <= MOST_ELEMENTS and tile.is_dense
            self._tiles[value.name] = {}
            if tile is not None and whole and index[: len(tile.lead)] == tile.lead:
                found = tile.loaded(self.pointer(value), self.body, pointer_stem(value))
                self._tiles[value.name] = {tile.index(place): name for place, name in found.items()}
        return self._tiles[value.name].get(index) or super()._load(value, index, guards)

    # -- factorisations ----------------------------------------------------------------------------

    def _factored(self, node: Node, name: str, index: Index) -> str:
        """An element of a result. Guards do not matter: the whole matrix is there for every thread."""
        place = node.outputs.index(name)
        depth = ELEMENTS[node.op] if place == 0 else 0
        lead = index[: len(index) - depth]
        key = (place, *(_number(at) for at in index[len(lead) :]))
        return self.whole(node, lead)[key]

    def whole(self, node: Node, lead: Index) -> Made:
        """All results of a factorisation of one item of the batch."""
        known = (node.outputs[0], lead)
        if known not in self._made:
            self._made[known] = FACTORED[node.op](self, node, lead)
        return self._made[known]

    def _matrix(
        self, name: str, lead: Index, wanted: Callable[[int, int], bool] = lambda row, column: True
    ) -> Matrix:
        """A small operand; zeros where its elements do not count."""
        value = self.graph.value(name)
        rows, columns = (_plain(value, dim) for dim in (-2, -1))
        own = lead[len(lead) - (value.rank - 2) :]
        return [
            [
                self.read(name, fitted(value, (*own, as_expr(row), as_expr(column))))
                if wanted(row, column)
                else ZERO
                for column in range(columns)
            ]
            for row in range(rows)
        ]

    def _checked(self, node: Node, lead: Index, code: str) -> None:
        if node["raises"] and self.failed is not None:
            shape = self.graph.value(str(node.outputs[0])).shape[:-2]
            self.failed(node["raises"], code, flat(lead, shape) if shape else None)

    def _coded(self, node: Node) -> bool:
        return bool(node["raises"]) or len(node.outputs) > 1

    def _cholesky(self, node: Node, lead: Index) -> Made:
        """Of the triangle that counts; the upper factor is the transpose of the lower one."""
        upper, name = node["upper"], str(node.inputs[0])
        given = self._matrix(name, lead, (lambda r, c: c >= r) if upper else (lambda r, c: r >= c))
        lower, code = self.write.cholesky(_turned(given) if upper else given, self._coded(node))
        self._checked(node, lead, code)
        return _results(_turned(lower) if upper else lower, code)

    def _triangular(self, node: Node, lead: Index) -> Made:
        upper, unit = node["upper"], node["unit"]

        def counts(row: int, column: int) -> bool:
            return (column > row if upper else column < row) or (row == column and not unit)

        matrix, right = (
            self._matrix(str(node.inputs[0]), lead, counts),
            self._matrix(str(node.inputs[1]), lead),
        )
        return _results(self.write.substituted(matrix, right, upper, unit))

    def _solve(self, node: Node, lead: Index) -> Made:
        right = self._matrix(str(node.inputs[1]), lead)
        return self._eliminated(node, lead, right)

    def _inverse(self, node: Node, lead: Index) -> Made:
        (rows,) = node["order"]
        return self._eliminated(node, lead, identity(rows))

    def _eliminated(self, node: Node, lead: Index, right: Matrix) -> Made:
        found = self.write.eliminated(self._matrix(str(node.inputs[0]), lead), right, coded=self._coded(node))
        self._checked(node, lead, found.code)
        return _results(self.write.solved(found), found.code)

    def _determinant(self, node: Node, lead: Index) -> Made:
        found = self.write.eliminated(self._matrix(str(node.inputs[0]), lead), [], signed=True)
        if not node["log"]:
            return {(0,): self.write.determinant(found)}
        sign, size = self.write.logarithm(found)
        return {(0,): sign, (1,): size}

    # -- sums --------------------------------------------------------------------------------------

    def _product(self, node: Node, index: Index, guards: tuple[str, ...]) -> str:
        a, b = (self.graph.value(str(name)) for name in node.inputs[:2])
        *lead, row, column = index
        depth = _plain(a, -1)
        if depth > LONGEST_SUM or a.dtype != "float32" or b.dtype != "float32":
            raise Unfit(f"a product over {depth} terms")
        terms = []
        for k in range(depth):
            x = self.read(a.name, fitted(a, (*lead[len(lead) - a.rank + 2 :], row, as_expr(k))), guards)
            y = self.read(b.name, fitted(b, (*lead[len(lead) - b.rank + 2 :], as_expr(k), column)), guards)
            if ZERO not in (x, y):
                terms.append(f"{x} * {y}")
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            terms.append(self._operand(str(node.inputs[2]), index, guards))
        return self.body.let(node.label or "product", " + ".join(terms)) if terms else ZERO

    def _reduced(self, node: Node, index: Index, guards: tuple[str, ...]) -> str:
        """Over dimensions of a few elements."""
        value, fn, dims = self.graph.value(str(node.inputs[0])), node["fn"], tuple(node["dims"])
        counts = [_plain(value, dim) for dim in dims]
        if (
            fn not in JOINED
            or node.get("order", 2) != 2
            or math.prod(counts) > LONGEST_SUM
            or value.dtype != "float32"
        ):
            raise Unfit(f"{fn} over {math.prod(counts)} elements")
        kept = iter(index)
        if node.get("keepdim"):
            places = list(index)
        else:
            places = [Expr() if dim in dims else next(kept) for dim in range(value.rank)]
        texts = []
        for numbers in every(*map(range, counts)):
            for dim, number in zip(dims, numbers, strict=True):
                places[dim] = as_expr(number)
            text = self.read(value.name, tuple(places), guards)
            texts.append(f"{text} * {text}" if fn == "norm" else text)
        text = texts[0]
        for other in texts[1:]:
            text = self.language.expression(JOINED[fn], [text, other], (), ["float32"] * 2, "float32")
        if fn == "mean":
            text = f"({text}) * {1.0 / len(texts)!r}"
        elif fn == "norm":
            text = self.language.expression("sqrt", [text], (), ["float32"], "float32")
        return self.body.let(node.label or fn, text)


FACTORED: dict[str, Callable[[Items, Node, Index], Made]] = {
    "cholesky": Items._cholesky,
    "triangular_solve": Items._triangular,
    "solve": Items._solve,
    "inverse": Items._inverse,
    "determinant": Items._determinant,
}
ELEMENTS = {"cholesky": 2, "triangular_solve": 2, "solve": 2, "inverse": 2, "determinant": 0}
"""Dimensions of a result that are no batch; error codes have none."""


def _results(matrix: Matrix, code: str = "") -> Made:
    made = {(0, row, column): text for row, column, text in _elements(matrix)}
    return made | {(1,): code}


def _elements(matrix: Matrix) -> Iterator[tuple[int, int, str]]:
    return ((row, column, text) for row, texts in enumerate(matrix) for column, text in enumerate(texts))


def _turned(matrix: Matrix) -> Matrix:
    return [list(column) for column in zip(*matrix, strict=True)]


def _number(at: Expr) -> int:
    if not at.is_constant or at.low != at.high:
        raise Unfit("an element of a small matrix at a place that varies")
    return at.low[0]


def _plain(value: Value, dim: int) -> int:
    """A size that is the same at every capture."""
    size = value.shape[dim]
    if size.factors:
        raise Unfit(f"small matrices of {size} rows or columns")
    return size.number
