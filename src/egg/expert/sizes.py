"""Sizes with names: the numbers of a program that change when the program is made larger or smaller.

A kernel file must be right at other sizes than the one it was written at, and a reader wants ``height`` where
a compiler would write 224. So a program is captured at several sizes, and each number of its graph becomes a
:class:`Size`: a product of named sizes and a plain number. Two numbers are taken for the same thing only if
they agree at all captured sizes, and one is smaller than another only if it is at all of them; a coincidence
at one size (as many channels as rows) decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, reduce
from math import gcd, prod


@dataclass(frozen=True, order=True)
class Symbol:
    """A named size, with its value at every size the program was captured at; one that is computed from plain
    numbers has one value for all."""

    name: str
    values: tuple[int, ...]

    def __hash__(self) -> int:
        return hash(self.name)  # a text's hash is computed once


@dataclass(frozen=True)
class Size:
    """``number`` times the product of ``factors`` (sorted; one that stands twice is a square)."""

    number: int
    factors: tuple[Symbol, ...] = ()

    @cached_property
    def values(self) -> tuple[int, ...]:
        """At each captured size, the program's own first; a plain number has one for all."""
        if not self.factors:
            return (self.number,)
        most = max(len(symbol.values) for symbol in self.factors)
        rows = (s.values * most if len(s.values) == 1 else s.values for s in self.factors)
        return tuple(self.number * prod(column) for column in zip(*rows, strict=True))

    @property
    def value(self) -> int:
        return self.values[0]

    def __mul__(self, other: Size | int) -> Size:
        other = as_size(other)
        result = self.number * other.number
        return Size(result, tuple(sorted((*self.factors, *other.factors))) if result else ())

    __rmul__ = __mul__

    def over(self, other: Size) -> Size | None:
        """The quotient where it is exact at every size; else ``None``."""
        if other.number == 0 or self.number % other.number:
            return None
        left = Counter(self.factors)
        left.subtract(other.factors)
        if any(count < 0 for count in left.values()):
            return None
        return Size(self.number // other.number, tuple(sorted(left.elements())))

    def below(self, other: Size | int) -> bool:
        """Smaller at every size."""
        return all(a < b for a, b in aligned(self.values, as_size(other).values))

    def code(self) -> str:
        """``channels * height * 4``."""
        parts = [symbol.name for symbol in self.factors]
        if abs(self.number) != 1 or not parts:
            parts.append(str(abs(self.number)))
        return ("-" if self.number < 0 else "") + " * ".join(parts)

    def __str__(self) -> str:
        return self.code()


def as_size(value: Size | int) -> Size:
    return value if isinstance(value, Size) else Size(value)


def named(name: str, values: tuple[int, ...]) -> Size:
    return Size(1, (Symbol(name, values),))


ONE = Size(1)


def product(sizes: Iterable[Size]) -> Size:
    return reduce(lambda a, b: a * b, sizes, ONE)


def common_factor(a: Size, b: Size) -> Size:
    """The largest size that divides both."""
    shared = Counter(a.factors) & Counter(b.factors)
    return Size(gcd(a.number, b.number) or 1, tuple(sorted(shared.elements())))


def aligned(a: tuple[int, ...], b: tuple[int, ...]) -> Iterable[tuple[int, int]]:
    """Pairs of values at the same captured size; a plain number has one value for all."""
    most = max(len(a), len(b))
    return zip(a * (most // len(a)), b * (most // len(b)), strict=True)
