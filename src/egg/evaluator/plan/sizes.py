"""Numbers of two recorded calls that are one function of the sizes that they were recorded at."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterator, Sequence

OFFSETS = 2
"""A size and so many elements more or less: borders of a window, one more row."""
DIVISORS = (*range(2, 65), *(1 << n for n in range(7, 17)))
"""By which a size may be divided, up or down."""
MOST_SINGLE = 40
"""Different sizes of which products and quotients of two are made."""
NEAR = 1e-9
Pair = tuple[int, int]
Number = bool | int | float


class Scales:
    """Sizes of two calls, each with its counterpart, and what follows from them."""

    def __init__(self, own: str, other: str) -> None:
        shapes = [pair for pair in zip(_shapes(own), _shapes(other), strict=False) if _same_rank(pair)]
        single = dict.fromkeys(p for one, two in shapes for p in zip(one, two, strict=True) if all(p))
        runs = dict.fromkeys(
            (math.prod(one[a:b]), math.prod(two[a:b]))
            for one, two in shapes
            for a, b in itertools.combinations(range(len(one) + 1), 2)
        )
        self._single = list(single)[:MOST_SINGLE]
        singles = [p for p in single if p[0] != p[1]][:MOST_SINGLE]
        products = dict.fromkeys((a * c, b * d) for (a, b), (c, d) in itertools.product(singles, singles))
        self._pairs: list[Pair] = [p for p in {**single, **runs, **products} if p[0] != p[1] and all(p)]
        self._ratios = {a / b for a, b in self._pairs} | {
            (a / b) / (c / d) for (a, b), (c, d) in itertools.product(singles, singles)
        }

    def explains(self, one: Number, two: Number, offsets: int = OFFSETS) -> bool:
        """Whether both are the same function of the sizes: equal; a constant times a size or a product of
        two, give or take ``offsets`` (at most half the number); or such a size divided, up or down."""
        if type(one) is not type(two):
            return False
        if one == two or (one != one and two != two):
            return True
        if isinstance(one, float) or isinstance(two, float):
            return self._explains_float(float(one), float(two))
        if isinstance(one, bool) or one * two <= 0:
            return False
        one, two = abs(one), abs(two)
        return any(
            (one - c) * smaller == (two - c) * larger
            for c in range(-offsets, offsets + 1)
            for larger, smaller in self._pairs
            if 2 * abs(c) <= min(one, two)
        ) or any(
            one == _divided(larger, n, up) and two == _divided(smaller, n, up)
            for larger, smaller in self._pairs
            for n in DIVISORS
            for up in (False, True)
        )

    def explains_length(self, one: int, two: int) -> bool:
        """Whether the share of memory that is handed over is no larger at the own size.

        Its lengths follow from sizes, or are two sizes that lie behind one another, or a size padded to full
        blocks or to a power of two, or that for each element of another size. Shorter memory is none.
        """
        if one <= two or self.explains(one, two) or self._joined(one, two):
            return True
        return any(
            self._padded(one // larger, two // smaller)
            for larger, smaller in [(1, 1), *self._pairs, *self._single]
            if one % larger == 0 and two % smaller == 0
        )

    def _joined(self, one: int, two: int) -> bool:
        return any(
            one - larger - c == other and two - smaller - c == least
            for larger, smaller in self._single
            for other, least in self._single
            for c in range(-OFFSETS, OFFSETS + 1)
        )

    def _padded(self, one: int, two: int) -> bool:
        blocks = [n for n in DIVISORS if one % n == 0 and two % n == 0]
        return any(
            (one, two) == (_padded_to(larger, n), _padded_to(smaller, n))
            for larger, smaller in self._pairs
            for n in blocks
        ) or any(
            (one, two) == (_power_of_two(larger), _power_of_two(smaller)) for larger, smaller in self._pairs
        )

    def quotient(self, one: Number, two: Number) -> bool:
        """Whether both are in proportion to a size or to a quotient of two (channels of a group)."""
        return one * two > 0 and any(abs(one / two - known) <= NEAR * known for known in self._ratios)

    def _explains_float(self, one: float, two: float) -> bool:
        """In proportion to a size, or to its root (the scale of attention)."""
        if not (one and two and math.isfinite(one) and math.isfinite(two)) or (one < 0) != (two < 0):
            return False
        ratio = one / two
        ways = (ratio, 1 / ratio, ratio * ratio, 1 / (ratio * ratio))
        return any(abs(way - known) <= NEAR * known for way in ways for known in self._ratios)


def _shapes(form: str) -> Iterator[tuple[int, ...]]:
    """Of every tensor that a signature names, in its order, and its integers."""
    for node in _in_order(ast.parse(form, mode="eval").body):
        if not isinstance(node, ast.Tuple) or not node.elts or not isinstance(node.elts[0], ast.Constant):
            continue
        kind = node.elts[0].value
        if kind == "tensor" and len(node.elts) == 4:
            yield tuple(ast.literal_eval(node.elts[1]))
        elif kind == "int" and len(node.elts) == 2:
            yield (abs(int(ast.literal_eval(node.elts[1]))),)


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)


def _same_rank(pair: tuple[Sequence[int], Sequence[int]]) -> bool:
    return len(pair[0]) == len(pair[1])


def _divided(size: int, by: int, up: bool) -> int:
    return -(-size // by) if up else size // by


def _padded_to(size: int, block: int) -> int:
    return -(-size // block) * block


def _power_of_two(size: int) -> int:
    return 1 << (size - 1).bit_length()
