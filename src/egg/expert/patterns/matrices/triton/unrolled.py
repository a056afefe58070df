"""Factorisations of one matrix per thread, every element a variable, all loops unrolled.

A matrix is a list of rows of texts. Elements that are zero or one for certain are literals, and what is
computed with them is not written (an identity as the right side costs nothing before the first exchange of
rows).

Gaussian elimination takes the largest element of a column as pivot, as LAPACK does. Which row that is
differs from thread to thread, so rows cannot be renamed: each row below is compared with the one above, and
the two are exchanged by selects where it has the larger element. After all of them the largest one is above,
the first one of several. The others come out in another order than LAPACK leaves them in, which changes
neither the pivots nor what they are divided by. Right sides are exchanged and eliminated along with the
matrix, so no factor is kept. A row below is divided by the reciprocal of its pivot, as LAPACK divides; where
that pivot is zero all elements below are, too, and nothing is subtracted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from egg.expert.emit.reader import Body
from egg.expert.emit.triton.scalar import is_literal

ZERO, UNIT = "0.0", "1.0"
Matrix = list[list[str]]


def identity(rows: int) -> Matrix:
    return [[UNIT if row == column else ZERO for column in range(rows)] for row in range(rows)]


@dataclass(frozen=True)
class Eliminated:
    """A matrix after elimination, and what came of its right sides."""

    upper: Matrix
    right: Matrix
    reciprocals: list[str]
    """Of the pivots."""
    sign: str
    """Of the permutation of the rows; empty where nobody asked."""
    code: str
    """The first row whose pivot is zero, counted from 1, or 0; empty where nobody asked."""


@dataclass(frozen=True)
class Unrolled:
    """Writes algorithms into a kernel's body; what they compute twice is there already."""

    body: Body
    _known: dict[str, str] = field(default_factory=dict)

    def cholesky(self, a: Matrix, coded: bool) -> tuple[Matrix, str]:
        """The lower factor by its columns, of the lower triangle. The code is the order of the first leading
        minor that is not positive, or 0."""
        rows = range(len(a))
        factor = [[ZERO for _ in rows] for _ in rows]
        code = "0"
        for column in rows:
            left = self._less(
                a[column][column], [(factor[column][k], factor[column][k]) for k in range(column)]
            )
            left = self._variable(left)
            if coded:
                failed = f"tl.where({left} > 0.0, 0, {column + 1})"
                code = self._let(
                    "code", failed if column == 0 else f"tl.where({code} == 0, {failed}, {code})"
                )
            factor[column][column] = self._let("root", f"tl.sqrt_rn({left})")
            over = self._let("over", f"1.0 / {factor[column][column]}") if column + 1 < len(a) else ""
            for row in rows[column + 1 :]:
                pairs = [(factor[row][k], factor[column][k]) for k in range(column)]
                factor[row][column] = self._let("factor", f"{self._less(a[row][column], pairs)} * {over}")
        return factor, code

    def substituted(self, a: Matrix, right: Matrix, upper: bool, unit: bool) -> Matrix:
        """The solution of a triangular system, from the first row down or from the last row up."""
        count = len(a)
        order = range(count - 1, -1, -1) if upper else range(count)
        made: Matrix = [[] for _ in a]
        for row in order:
            known = range(row + 1, count) if upper else range(row)
            over = "" if unit else self._let("over", f"1.0 / {self._variable(a[row][row])}")
            for column, given in enumerate(right[row]):
                total = self._less(given, [(a[row][k], made[k][column]) for k in known])
                made[row].append(total if unit or total == ZERO else self._let("solved", _times(total, over)))
        return made

    def eliminated(
        self, a: Matrix, right: Matrix, *, signed: bool = False, coded: bool = False
    ) -> Eliminated:
        """Rows of the matrix, and of the right sides beside it, until the matrix is an upper triangle."""
        count = len(a)
        beside = right or [[] for _ in a]
        rows = [[*map(self._variable, above), *more] for above, more in zip(a, beside, strict=True)]
        reciprocals, sign, code = [], UNIT, "0"
        for at in range(count):
            for below in range(at + 1, count):
                sign = self._exchanged(rows, at, below, sign if signed else "")
            pivot = rows[at][at]
            if coded:
                failed = f"tl.where({pivot} == 0.0, {at + 1}, 0)"
                code = self._let("code", failed if at == 0 else f"tl.where({code} == 0, {failed}, {code})")
            reciprocals.append(self._let("over", f"1.0 / {pivot}") if right or at + 1 < count else "")
            for below in range(at + 1, count):
                share = f"tl.where({pivot} == 0.0, 0.0, {rows[below][at]} * {reciprocals[at]})"
                share = self._let("share", share)
                for column in range(at + 1, len(rows[at])):
                    rows[below][column] = self._less(rows[below][column], [(share, rows[at][column])])
                rows[below][at] = ZERO
        upper, beside = [row[:count] for row in rows], [row[count:] for row in rows]
        return Eliminated(upper, beside, reciprocals, sign, code)

    def solved(self, found: Eliminated) -> Matrix:
        """The solution behind an elimination, from the last row up."""
        count = len(found.upper)
        made: Matrix = [[] for _ in found.upper]
        for row in reversed(range(count)):
            for column, given in enumerate(found.right[row]):
                pairs = [(found.upper[row][k], made[k][column]) for k in range(row + 1, count)]
                total = self._less(given, pairs)
                made[row].append(
                    total if total == ZERO else self._let("solved", _times(total, found.reciprocals[row]))
                )
        return made

    def determinant(self, found: Eliminated) -> str:
        text = found.sign
        for row, elements in enumerate(found.upper):
            text = self._let("determinant", _times(text, elements[row]))
        return text

    def logarithm(self, found: Eliminated) -> tuple[str, str]:
        """The sign of a determinant, zero with it, and the logarithm of its size."""
        pivots = [elements[row] for row, elements in enumerate(found.upper)]
        sign = found.sign
        for pivot in pivots:
            sign = self._let(
                "sign", f"tl.where({pivot} == 0.0, 0.0, tl.where({pivot} < 0.0, -{sign}, {sign}))"
            )
        size = " + ".join(f"tl.log(tl.abs({pivot}))" for pivot in pivots)
        return sign, self._let("size", size)

    def _exchanged(self, rows: Matrix, above: int, below: int, sign: str) -> str:
        """Puts the row with the larger element of column ``above`` there; the sign then."""
        first, second = rows[above], rows[below]
        larger = self._let("larger", f"tl.abs({second[above]}) > tl.abs({first[above]})")
        for column in range(above, len(first)):
            one, other = first[column], second[column]
            if one != other:
                first[column] = self._let("upper", f"tl.where({larger}, {other}, {one})")
                second[column] = self._let("lower", f"tl.where({larger}, {one}, {other})")
        return self._let("sign", f"tl.where({larger}, -{sign}, {sign})") if sign else ""

    def _less(self, total: str, pairs: Sequence[tuple[str, str]]) -> str:
        """``total`` minus the products of pairs."""
        products = [_times(a, b) for a, b in pairs if ZERO not in (a, b)]
        if not products:
            return total
        text = " - ".join(products)
        return self._let("left", f"-{text}" if total == ZERO else f"{total} - {text}")

    def _variable(self, text: str) -> str:
        """A number of the program as Triton's functions take it."""
        return self._let("element", f"tl.full((), {text}, tl.float32)") if is_literal(text) else text

    def _let(self, name: str, text: str) -> str:
        if text not in self._known:
            self._known[text] = self.body.let(name, text)
        return self._known[text]


def _times(a: str, b: str) -> str:
    if ZERO in (a, b):
        return ZERO
    return b if a == UNIT else a if b == UNIT else f"{a} * {b}"
