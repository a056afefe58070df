"""Rows of numbers and what they are called: a number, a named size, a product of named sizes.

A row has one value per captured size. What equals a row that has a name already is the same thing; what is
none of those needs a new name, and someone who knows how to find it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

from egg.expert.emit.words import RESERVED, of_kernels
from egg.expert.graph import Graph, Origin, Value
from egg.expert.sizes import Size, Symbol

MOST_FACTORS, MOST_PARTS = 5, 4
Row = tuple[Any, ...]
Named = Callable[[], tuple[str, str] | None]
"""A new name and the text that finds it, asked for only where nothing known will do."""


class Unresolved(Exception):
    """No rule was found for a number of the graph."""


@dataclass(frozen=True)
class Divisor:
    """What a named size is divided by: a plain number, or a size that has a name itself."""

    row: Row
    name: str = ""
    text: str = ""


class Part(Exception):
    """A row is an exact part of a named size."""

    def __init__(self, name: str, divisor: Divisor) -> None:
        super().__init__(name, divisor)
        self.name, self.divisor = name, divisor


@dataclass
class Rows:
    """Everything that has a name so far."""

    graphs: list[Graph]
    knobs: Mapping[str, Row]
    """Integers of the source: what follows one is named after it."""
    numbers: Mapping[str, Row]
    """Numbers that modules keep or that ``forward`` is given, by the text that finds them."""
    shares: Mapping[str, tuple[Divisor, ...]]
    """Named sizes of which only a part is named."""
    plain_points: int = 0
    """How many captures, from the first, were made at other integers of the source and nothing else: a size
    follows an integer if it does in these. 0 for all."""
    wanted: Mapping[Row, str] = field(default_factory=dict)
    """Names for rows that follow no integer."""
    symbols: dict[str, str] = field(default_factory=dict)
    known: dict[str, Symbol] = field(default_factory=dict)
    sizes: dict[Row, Size] = field(default_factory=dict)
    exact: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Parts of computed sizes: the whole, and how often the part goes into it."""

    def of(self, name: str, part: Callable[[Value], tuple[Size, ...]]) -> list[Row]:
        """The rows of a value's shape or stride."""
        columns = [[size.value for size in part(graph.values[name])] for graph in self.graphs]
        return [tuple(row) for row in zip(*columns, strict=True)]

    def size(self, row: Row, named: Named | None = None) -> Size:
        """What a row of numbers is called; ``named`` gives a new name and how to find it."""
        if len(set(row)) == 1 and isinstance(row[0], int):
            return Size(row[0])
        if not self.has(row):
            self.sizes[row] = self._fresh(row, named)
        return self.sizes[row]

    def has(self, row: Row) -> bool:
        """Whether nothing new is needed: a number, a name, or a product of names."""
        if row not in self.sizes and len(set(row)) > 1 and (found := self._product(row)):
            self.sizes[row] = found
        return row in self.sizes or len(set(row)) == 1

    def _product(self, row: Row) -> Size | None:
        for count in range(1, MOST_FACTORS + 1):
            factors = self._factors(row, count, 0)
            if factors is not None:
                number = row[0] // _value(factors, 0)
                return Size(number, tuple(sorted(factors)))
        return None

    def _factors(self, row: Row, count: int, start: int) -> list[Symbol] | None:
        candidates = [s for s in self.known.values() if all(isinstance(v, int) for v in s.values)]
        if count == 0:
            return [] if len(set(row)) == 1 else None
        for place in range(start, len(candidates)):
            symbol = candidates[place]
            if all(value % part == 0 for value, part in zip(row, symbol.values, strict=True)):
                left = tuple(value // part for value, part in zip(row, symbol.values, strict=True))
                rest = self._factors(left, count - 1, place)
                if rest is not None:
                    return [symbol, *rest]
        return None

    def _fresh(self, row: Row, named: Named | None) -> Size:
        """A new name, for a dimension of a leaf, for what a module holds, or for what is computed."""
        found = self._held(row) or (named() if named is not None else None)
        if found is None and (part := self._part_kept(row)) is not None:
            return part
        if found is None:
            raise Unresolved(f"no rule for {row}")
        name, text = self._unused(self._following(row) or self.wanted.get(row) or found[0]), found[1]
        divisors = self.shares.get(name, ())
        if not divisors:
            self._introduce(name, text, row)
            return Size(1, (self.known[name],))
        whole, by = Size(1), []
        for divisor in divisors:
            whole = whole * self.size(divisor.row, lambda d=divisor: (d.name, d.text))
            by.append(divisor.name or str(divisor.row[0]))
        part = [over(value, whole_at) for value, whole_at in zip(row, row_of(whole, len(row)), strict=True)]
        if any(value is None for value in part):
            raise Unresolved(f"{name} is not always a multiple of {whole}")
        name = self._unused("_".join((name, "by", *by)))
        self._introduce(name, f"{_bracketed(text)} // {_bracketed(whole.code())}", tuple(part))
        if ".shape[" not in text:
            self.exact[name] = (text, whole.code())
        return whole * Size(1, (self.known[name],))

    def _following(self, row: Row) -> str | None:
        """The integer of the source that a row follows; after several of them, one that is free."""
        count = self.plain_points or len(row)
        names = [
            name
            for name, values in self.knobs.items()
            if values[:count] == row[:count] and name.isidentifier() and (len(set(row[:count])) > 1)
        ]
        return next((name for name in names if name not in self.known), names[0] if names else None)

    def divisor(self, whole: Symbol, row: Row) -> Divisor | None:
        """What goes into ``whole`` just ``row`` times."""
        if any(not isinstance(v, int) or v <= 0 for v in (*whole.values, *row)):
            return None
        times = [over(w, p) for w, p in zip(whole.values, row, strict=True)]
        if any(t is None for t in times):
            return None
        quotient: Row = tuple(times)
        if len(set(quotient)) == 1:
            return Divisor(quotient) if quotient[0] != 1 else None
        for symbol in self.known.values():
            if symbol.values == quotient and symbol is not whole:
                return Divisor(quotient, symbol.name, self.symbols[symbol.name])
        held = self._held(quotient)
        return None if held is None else Divisor(quotient, *held)

    def _held(self, row: Row) -> tuple[str, str] | None:
        """A dimension that will be met later, or a number that some module keeps, by the shortest path."""
        for value in self.graphs[0].values.values():
            if value.origin is not Origin.NODE and row in (rows := self.of(value.name, lambda v: v.shape)):
                return dimension_name(value, rows.index(row)), dimension_text(value, rows.index(row))
        if any(type(number) is not int or number < 2 for number in row):
            return None
        return self._kept(row)

    def _kept(self, row: Row) -> tuple[str, str] | None:
        text = self._shortest.get(row)
        return None if text is None else (text.removeprefix("self."), text)

    def _part_kept(self, row: Row) -> Size | None:
        """A part of a number that is kept, rounded up or down: a module holds the width of a rotary embedding
        and counts its pairs, ``torch.arange(0, self.width, 2)``."""
        whole_numbers = {r: t for r, t in self._shortest.items() if all(type(n) is int for n in r)}
        for times in range(2, MOST_PARTS + 1):
            for whole, text in whole_numbers.items():
                up = all(-(-number // times) == part for number, part in zip(whole, row, strict=True))
                down = all(number // times == part for number, part in zip(whole, row, strict=True))
                if not up and not down:
                    continue
                name = self._unused(self._following(row) or f"{text.removeprefix('self.')}_by_{times}")
                part = f"{_bracketed(text)} // {times}"
                self._introduce(name, part if down else f"-(-{part})", row)
                if up and down:
                    self.exact[name] = (text, str(times))
                return Size(1, (self.known[name],))
        return None

    @cached_property
    def _shortest(self) -> Mapping[Row, str]:
        """By row of numbers that are kept, the shortest way to one; those that never change need none."""
        found: dict[Row, str] = {}
        for text, values in self.numbers.items():
            if len(set(values)) > 1:
                now = found.setdefault(values, text)
                found[values] = min(now, text, key=lambda t: (t.count("."), len(t)))
        return found

    def _introduce(self, name: str, text: str, row: Row) -> None:
        self.known[name] = Symbol(name, row)
        self.symbols[name] = text

    def _unused(self, wanted: str) -> str:
        """No clash with values, arguments or words of the language."""
        base = re.sub(r"\W+", "_", wanted).strip("_") or "size"
        base = f"size_{base}" if base[0].isdigit() else base
        base = f"{base}_size" if base in self._kernel_words else base
        taken = {*self.known, *self.graphs[0].values, *RESERVED}
        taken |= {v.path for v in self.graphs[0].values.values()}
        name, count = base, 1
        while name in taken:
            count += 1
            name = (
                f"{base}_{count}"
                if base not in self.graphs[0].values
                else f"{base}_size{'' if count == 2 else count}"
            )
        return name

    @cached_property
    def _kernel_words(self) -> frozenset[str]:
        """What kernels for this program call things of their own: sizes of that name would be in the way."""
        return of_kernels(node.op for node in self.graphs[0].nodes)

    def real(self, wanted: str, row: Row, kept: bool = False) -> Size:
        """A number that is computed from a size or a product of sizes (one over its root, one over it), or
        from one that is kept."""
        if row in self.sizes:
            return self.sizes[row]
        if found := (self._kept(row) or self._from_kept(wanted, row)) if kept else None:
            name = self._unused(found[0])
            self._introduce(name, found[1], row)
            self.sizes[row] = Size(1, (self.known[name],))
            return self.sizes[row]
        form, size = self._computed(wanted, row)
        name = self._unused(wanted)
        self._introduce(name, form.format(_bracketed(size.code())), row)
        self.sizes[row] = Size(1, (self.known[name],))
        return self.sizes[row]

    def _computed(self, wanted: str, row: Row) -> tuple[str, Size]:
        """The form that makes ``row`` of a size: of one that something has, else of a product that nothing
        has (``numel() ** 0.5``), which the form's inverse finds."""
        candidates = [*self.sizes.values(), *(Size(1, (s,)) for s in self.known.values())]
        for size in dict.fromkeys(candidates):
            values = row_of(size, len(row))
            if all(isinstance(v, int) and v > 0 for v in values):
                for form, compute, _ in _FORMS:
                    if _close(row, [compute(v) for v in values]):
                        return form, size
        found: list[tuple[str, Size]] = []
        for form, compute, inverse in _FORMS:
            wholes = tuple(round(inverse(n)) if _TINY < abs(n) < 1 / _TINY else 0 for n in row)
            if min(wholes) > 0 and _close(row, [compute(v) for v in wholes]) and self.has(wholes):
                found.append((form, self.size(wholes)))
        if found:  # the root of a square is the number itself
            return min(found, key=lambda one: len(one[1].factors))
        raise Unresolved(f"no rule for {wanted}: {row}")

    def quotient(self, wanted: str, row: Row, pairs: Iterable[tuple[Size, Size]]) -> Size | None:
        """A size over another, or one less than each: how far apart the elements of a resized image lie."""
        if row in self.sizes:
            return self.sizes[row]
        for pair, less in product(pairs, (0, 1)):
            first, second = ([value - less for value in row_of(size, len(row))] for size in pair)
            if min(second) < 1 or not _close(row, [a / b for a, b in zip(first, second, strict=True)]):
                continue
            codes = (f"{size.code()} - {less}" if less else size.code() for size in pair)
            name = self._unused(wanted)
            self._introduce(name, " / ".join(_bracketed(code) for code in codes), row)
            self.sizes[row] = Size(1, (self.known[name],))
            return self.sizes[row]
        return None

    def _from_kept(self, wanted: str, row: Row) -> tuple[str, str] | None:
        for text, values in self.numbers.items():
            if len(set(values)) == 1 or not all(values):
                continue
            for form, compute in _KEPT_FORMS:
                if _close(row, [compute(value) for value in values]):
                    return wanted, form.format(text)
        return None

    def root(self, name: str) -> str:
        """The size that others were computed from, one after the other."""
        while name in self.symbols and "." not in self.symbols[name]:
            words = [w for w in re.findall(r"[A-Za-z_]\w*", self.symbols[name]) if w in self.symbols]
            if not words:
                break
            name = words[0]
        return name


_FORMS: tuple[tuple[str, Callable[[int], float], Callable[[float], float]], ...] = (
    ("{} ** -0.5", lambda n: n**-0.5, lambda x: x**-2),
    ("{} ** 0.5", lambda n: n**0.5, lambda x: x**2),
    ("1.0 / {}", lambda n: 1.0 / n, lambda x: 1.0 / x),
    ("float({})", float, lambda x: x),
    ("-{}", lambda n: -n, lambda x: -x),
)
"""How a number is written, how it is computed from a size, and the size that it would be computed from."""
_TINY = 2.0**-62
"""No size is so large that something computed from it comes near."""


_KEPT_FORMS: tuple[tuple[str, Callable[[float], float]], ...] = (
    ("1.0 / {}", lambda n: 1.0 / n),
    ("-{}", lambda n: -n),
)


def _close(row: Row, values: Sequence[float]) -> bool:
    return all(abs(a - b) <= 1e-12 * max(abs(a), abs(b)) for a, b in zip(row, values, strict=True))


def over(whole: int, part: int) -> int | None:
    return whole // part if part and whole % part == 0 else None


def row_of(size: Size, count: int) -> Row:
    return size.values * (count // len(size.values))


def _value(factors: Sequence[Symbol], at: int) -> int:
    total = 1
    for symbol in factors:
        total *= symbol.values[at]
    return total


def _bracketed(text: str) -> str:
    return text if re.fullmatch(r"[\w.\[\]]+", text) else f"({text})"


def dimension_name(value: Value, dim: int) -> str:
    return f"{value.path.replace('.', '_')}_{dim}"


def dimension_text(value: Value, dim: int) -> str:
    stem = value.path if value.origin is Origin.INPUT else attribute_text(value.path)
    return f"{stem}.shape[{dim}]"


def attribute_text(path: str) -> str:
    """How Python spells a parameter: ``self.layers[0].weight``."""
    text = "self"
    for part in path.split("."):
        text += f"[{part}]" if part.isdigit() else f".{part}"
    return text
