"""Index arithmetic: whole numbers built from loop indices, simplified as far as their ranges allow.

A kernel's programs count flat positions; views ask for coordinates. Composing the two gives quotients
and remainders that mostly cancel: ``(x // 4) * 4 + x % 4`` is ``x``. Simplifying them away is what
turns a chain of reshapes and permutes back into one stride per loop, so it happens here, once, with the
ranges of the indices at hand, and the text of a kernel holds only what is really left to compute.

Strides, divisors and ranges are :class:`~egg.expert.sizes.Size`: a rule is applied only where it holds at
every size the program was captured at. Quotients and remainders are of non-negative values only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce

from egg.expert.sizes import ONE, Size, Symbol, aligned, as_size, common_factor, product


class Negative(ValueError):
    """A quotient or remainder of what may be negative was asked for."""


@dataclass(frozen=True)
class Atom:
    """What cannot be simplified further: a loop index, or a quotient or remainder of an expression."""

    size: Size
    """One more than the largest value."""
    name: str = ""
    """Of a loop index; empty for the others."""
    base: Expr | None = None
    divisor: Size = ONE
    """``base // divisor``, then ``% modulus`` where there is one."""
    modulus: Size | None = None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Computed once: atoms hold expressions, which hold atoms."""
        return hash((self.size, self.name, self.base, self.divisor, self.modulus))

    def symbols(self) -> frozenset[str]:
        return frozenset({self.name}) if self.base is None else self.base.symbols()

    def substituted(self, replacements: dict[str, Expr]) -> Expr:
        if self.base is None:
            return replacements.get(self.name, Expr(((self, ONE),)))
        inner = self.base.substituted(replacements) // self.divisor
        return inner % self.modulus if self.modulus is not None else inner

    @cached_property
    def text(self) -> str:
        if self.base is None:
            return self.name
        text = self.base.code()
        text = text if text.isidentifier() else f"({text})"
        text = f"{text} // {_operand(self.divisor)}" if self.divisor != ONE else text
        return f"({text} % {_operand(self.modulus)})" if self.modulus is not None else f"({text})"


def _operand(size: Size) -> str:
    text = size.code()
    return f"({text})" if " " in text else text


UNIT = Atom(ONE, "1")
"""What constants are multiples of."""


@dataclass(frozen=True)
class Expr:
    """A sum of multiples of atoms: ``3*x + width*(y // 4) + 7``. The empty sum is 0."""

    terms: tuple[tuple[Atom, Size], ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    @cached_property
    def low(self) -> tuple[int, ...]:
        """The smallest value it can take, at every captured size."""
        return self._bound(min)

    @cached_property
    def high(self) -> tuple[int, ...]:
        return self._bound(max)

    def _bound(self, pick: object) -> tuple[int, ...]:
        total: tuple[int, ...] = (0,)
        for atom, factor in self.terms:
            if atom == UNIT:
                term = factor.values
            else:
                ends = [c * (s - 1) for c, s in aligned(factor.values, atom.size.values)]
                term = tuple(pick(0, end) for end in ends)  # type: ignore[operator]
            total = tuple(a + b for a, b in aligned(total, term))
        return total

    @property
    def is_constant(self) -> bool:
        return all(atom == UNIT for atom, _ in self.terms)

    def may_be_negative(self) -> bool:
        return any(value < 0 for value in self.low)

    def may_exceed_zero(self) -> bool:
        return any(value > 0 for value in self.high)

    def below(self, size: Size | int) -> bool:
        """Always smaller, at every size."""
        return all(a < b for a, b in aligned(self.high, as_size(size).values))

    def __add__(self, other: Expr | Size | int) -> Expr:
        return _sum((*self.terms, *as_expr(other).terms))

    __radd__ = __add__

    def __mul__(self, factor: Size | int) -> Expr:
        factor = as_size(factor)
        return _sum(tuple((a, c * factor) for a, c in self.terms)) if factor.number else Expr()

    __rmul__ = __mul__

    def __sub__(self, other: Expr | Size | int) -> Expr:
        return self + as_expr(other) * -1

    def __rsub__(self, other: Size | int) -> Expr:
        return self * -1 + other

    def __floordiv__(self, divisor: Size | int) -> Expr:
        return _divided(self, as_size(divisor))[0]

    def __mod__(self, divisor: Size | int) -> Expr:
        return _divided(self, as_size(divisor))[1]

    def symbols(self) -> frozenset[str]:
        """Names of the loop indices it depends on."""
        return frozenset().union(*(a.symbols() for a, _ in self.terms if a != UNIT))

    def stride_of(self, name: str) -> Size | None:
        """What one step of a loop index moves it by: 0 where it does not, ``None`` where that varies."""
        if name not in self.symbols():
            return Size(0)
        found = [c for a, c in self.terms if a.name == name and a != UNIT]
        inside = any(a.base is not None and name in a.symbols() for a, _ in self.terms)
        return found[0] if len(found) == 1 and not inside else None

    def substituted(self, replacements: dict[str, Expr]) -> Expr:
        """With expressions in the place of loop indices, simplified anew."""
        total = Expr()
        for atom, factor in self.terms:
            total = total + (
                Expr(((UNIT, factor),)) if atom == UNIT else atom.substituted(replacements) * factor
            )
        return total

    def sizes(self) -> frozenset[str]:
        """Names of the sizes that its code mentions."""
        found: set[str] = set()
        for atom, factor in self.terms:
            found |= {symbol.name for symbol in factor.factors}
            if atom.base is not None:
                found |= atom.base.sizes() | {s.name for s in atom.divisor.factors}
                found |= {s.name for s in atom.modulus.factors} if atom.modulus is not None else set()
        return frozenset(found)

    def code(self) -> str:
        """As Python, and as Triton."""
        parts = []
        for atom, factor in self.terms:
            size = factor * -1 if factor.number < 0 else factor
            text = size.code() if atom == UNIT else atom.text
            text = text if atom == UNIT or size == ONE else f"{text} * {_operand(size)}"
            parts.append(("-" if factor.number < 0 else "+", text))
        if not parts:
            return "0"
        first = ("-" if parts[0][0] == "-" else "") + parts[0][1]
        return first + "".join(f" {sign} {text}" for sign, text in parts[1:])

    def __str__(self) -> str:
        return self.code()


Index = tuple[Expr, ...]


def loop_index(name: str, size: Size | int) -> Expr:
    """An index from 0 to ``size - 1``; always 0 where there is one place only."""
    size = as_size(size)
    return Expr(((Atom(size, name), ONE),)) if size != ONE else Expr()


def as_expr(value: Expr | Size | int) -> Expr:
    if isinstance(value, Expr):
        return value
    size = as_size(value)
    return Expr(((UNIT, size),)) if size.number else Expr()


def flat(index: Index, shape: tuple[Size, ...]) -> Expr:
    """The position in row-major order."""
    return reduce(lambda total, pair: total * pair[1] + pair[0], zip(index, shape, strict=True), Expr())


def unflat(position: Expr, shape: tuple[Size, ...]) -> Index:
    """The coordinates of a row-major position."""
    found: list[Expr] = []
    for dim, size in enumerate(shape):
        if size == ONE:
            found.append(Expr())
            continue
        quotient = position // product(shape[dim + 1 :])
        found.append(quotient if quotient.below(size) else quotient % size)
    return tuple(found)


def reshaped(index: Index, shape: tuple[Size, ...], source: tuple[Size, ...]) -> Index:
    """The coordinates of the same element in another shape.

    The index of a padded value may be negative where nothing is read, and is not divided. Dimensions that
    stay as they are need no division, and what is padded lies most often along them.
    """
    try:
        return unflat(flat(index, shape), source)
    except Negative:
        wide = [(at, size) for at, size in zip(index, shape, strict=True) if size != ONE]
        kept = [size for size in source if size != ONE]
        first, last = 0, 0
        while first < min(len(wide), len(kept)) and wide[first][1] == kept[first]:
            first += 1
        while last < min(len(wide), len(kept)) - first and wide[-1 - last][1] == kept[-1 - last]:
            last += 1
        places, sizes = tuple(at for at, _ in wide), tuple(size for _, size in wide)
        behind, left = len(wide) - last, tuple(kept[first : len(kept) - last])
        middle = unflat(flat(places[first:behind], sizes[first:behind]), left)
        found = iter((*places[:first], *middle, *places[behind:]))
        return tuple(Expr() if size == ONE else next(found) for size in source)


@lru_cache(maxsize=65536)
def _sum(terms: tuple[tuple[Atom, Size], ...]) -> Expr:
    totals: dict[tuple[Atom, tuple[object, ...]], Size] = {}
    for atom, factor in terms:
        key = (atom, factor.factors)
        earlier = totals.get(key)
        totals[key] = factor if earlier is None else Size(earlier.number + factor.number, factor.factors)
    return _joined(tuple((key[0], factor) for key, factor in totals.items() if factor.number))


def _joined(terms: tuple[tuple[Atom, Size], ...]) -> Expr:
    """Join a remainder with its quotient: ``c*m*(e // (d*m)) + c*((e // d) % m)`` is ``c*(e // d)``."""
    for place, (atom, factor) in enumerate(terms):
        if atom.base is None or atom.modulus is None:
            continue
        whole = (atom.base // (atom.divisor * atom.modulus)) * (factor * atom.modulus)
        rest = [term for at, term in enumerate(terms) if at != place]
        if whole.terms and all(term in rest for term in whole.terms):
            for term in whole.terms:
                rest.remove(term)
            return _sum((*rest, *((atom.base // atom.divisor) * factor).terms))
        # Two digits of one number are one digit: c*d*((e // d) % m) + c*(e % d) is c*(e % (d*m)).
        for other, (above, multiple) in enumerate(terms):
            next_digit = (above.base, above.divisor) == (atom.base, atom.divisor * atom.modulus)
            if next_digit and above.modulus is not None and multiple == factor * atom.modulus:
                both = atom.modulus * above.modulus
                joined = Atom(both, "", atom.base, atom.divisor, both)
                others = tuple(term for at, term in enumerate(terms) if at not in (place, other))
                return _sum((*others, (joined, factor)))
    return Expr(tuple(sorted(terms, key=_order)))


def _order(term: tuple[Atom, Size]) -> tuple[bool, int, str]:
    """Large strides first, constants last, then by text: one spelling for one sum."""
    return term[0] == UNIT, -abs(term[1].value), term[0].text


@lru_cache(maxsize=65536)
def _divided(value: Expr, divisor: Size) -> tuple[Expr, Expr]:
    """Quotient and remainder: what the divisor divides leaves whole, the rest stays together if it must."""
    if divisor.number <= 0:
        raise ValueError(f"indices are divided by positive sizes, not {divisor}")
    if divisor == ONE:
        return value, Expr()
    whole: list[tuple[Atom, Size]] = []
    rest: list[tuple[Atom, Size]] = []
    for atom, factor in value.terms:
        quotient = factor.over(divisor)
        if quotient is not None:
            whole.append((atom, quotient))
        elif atom == UNIT and not factor.factors and not divisor.factors:
            whole.append((atom, Size(factor.number // divisor.number)))
            rest.append((atom, Size(factor.number % divisor.number)))
        else:
            rest.append((atom, factor))
    quotient, left = _sum(tuple(whole)), _sum(tuple(rest))
    if left.may_be_negative() and not (quotient - 1).may_be_negative():
        quotient, left = (
            quotient - 1,
            left + divisor,
        )  # a flipped index: what is left borrows from what is whole
    if left.may_be_negative():
        raise Negative(f"{value} may be negative where it is divided by {divisor}")
    if left.below(divisor):
        return quotient, left
    # What the divisor shares with some term can be taken out of both, if all else is smaller than that.
    for shared in sorted({common_factor(c, divisor) for _, c in left.terms}, key=lambda s: -s.value):
        scaled, small = _scaled(left, shared)
        if shared != ONE and small.below(shared) and not small.may_be_negative():
            inner_quotient, inner_rest = _divided(scaled, divisor.over(shared) or ONE)
            return quotient + inner_quotient, inner_rest * shared + small
    return quotient + _quotient(left, divisor), _remainder(left, divisor)


def _scaled(value: Expr, shared: Size) -> tuple[Expr, Expr]:
    """``value`` as ``shared`` times something, and the constant that is left over."""
    scaled, small = [], []
    for atom, factor in value.terms:
        quotient = factor.over(shared)
        if quotient is not None:
            scaled.append((atom, quotient))
        elif not factor.factors and not shared.factors:
            scaled.append((atom, Size(factor.number // shared.number)))
            small.append((atom, Size(factor.number % shared.number)))
        else:
            small.append((atom, factor))
    return _sum(tuple(scaled)), _sum(tuple(small))


def _quotient(value: Expr, divisor: Size) -> Expr:
    inner = _single(value)
    if inner is not None and inner.base is not None:
        if inner.modulus is None:
            return _quotient(inner.base, inner.divisor * divisor)
        fewer = inner.modulus.over(divisor)
        if fewer is not None:
            return Expr(((Atom(fewer, "", inner.base, inner.divisor * divisor, fewer), ONE),))
    if value.below(divisor):
        return Expr()
    return Expr(((Atom(_places(value, divisor), "", value, divisor), ONE),))


def _places(value: Expr, divisor: Size) -> Size:
    """How many values a quotient takes: exact where the range is a multiple, else numbers under a name."""
    atom = _single(value)
    exact = atom.size.over(divisor) if atom is not None else None
    if exact is not None:
        return exact
    counts = tuple(high // d + 1 for high, d in aligned(value.high, divisor.values))
    return Size(1, (Symbol(f"ceil({value.code()} / {divisor.code()})", counts),))


def _remainder(value: Expr, divisor: Size) -> Expr:
    inner = _single(value)
    if inner is not None and inner.base is not None:
        fits = inner.modulus is None or inner.modulus.over(divisor) is not None
        if fits:
            return Expr(((Atom(divisor, "", inner.base, inner.divisor, divisor), ONE),))
    return Expr(((Atom(divisor, "", value, ONE, divisor), ONE),))


def _single(value: Expr) -> Atom | None:
    """The atom, where the expression is one and nothing else."""
    if len(value.terms) == 1 and value.terms[0][1] == ONE and value.terms[0][0] != UNIT:
        return value.terms[0][0]
    return None
