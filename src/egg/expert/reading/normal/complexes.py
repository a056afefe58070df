"""Arithmetic of complex numbers by their parts.

Kernels know no complex numbers, so each operator between two transforms would be a call of PyTorch with a
pass over memory of its own: a conjugate product, a division by magnitudes, a momentum on phases. What is
known by its parts (spectra that calls make, numbers put together from parts, what a module or a caller holds)
is computed with these as pairs, in the passes around it, and stored once, where a call wants complex numbers.
"""

from __future__ import annotations

from egg.expert.graph import NUMBERS, Node, Value
from egg.expert.reading.normal import tables, views
from egg.expert.reading.normal.builder import Builder, Call, Lowered, Operand, Rule, extents
from egg.expert.reading.normal.spectra import PARTS, call_of, made_parts, pairs_of, waits

EARLIER = {**tables.RULES, **views.RULES}
"""What rules here fall back to."""


def _pairs(b: Builder, value: Operand | None) -> Value | None:
    """Both parts of a complex tensor in a dimension of their own, behind all others."""
    if not isinstance(value, Value) or value.dtype != "complex64" or waits(b):
        return None
    made = made_parts(b, value)
    if made is not None:
        return made
    maker = b.producers.get(value.name)
    if maker is None or maker.op == "library":
        return pairs_of(b, value)
    return _seen_pairs(b, value, maker) if maker.op == "view" else None


def _seen_pairs(b: Builder, value: Value, view: Node) -> Value | None:
    """A view of pairs instead of pairs of a view: calls make what they make once, where it stays."""
    pairs = _pairs(b, b.values[str(view.inputs[0])])
    if pairs is None:
        return None
    match view["how"]:
        case "reshape":
            return b.reshape(pairs, (*extents(value), 2))
        case "expand":
            return b.expand(pairs, (*extents(value), 2))
        case "permute":
            return b.permute(pairs, (*view["dims"], pairs.rank - 1))
        case "flip":
            return b.flip(pairs, view["dims"])
        case "slice":
            places = zip(view["starts"], extents(value), view["steps"], strict=True)
            for dim, (start, length, step) in enumerate(places):
                pairs = b.slice(pairs, dim, start, length, step)
            return pairs
    return None


def _parts(b: Builder, value: Operand | None) -> tuple[Value, Value] | None:
    """The real and the imaginary part."""
    pairs = _pairs(b, value)
    if pairs is None:
        return None
    shape = extents(pairs)[:-1]
    first, second = (b.reshape(b.slice(pairs, -1, place, 1), shape) for place in (0, 1))
    return first, second


def _numbers(b: Builder, pairs: Value) -> Value:
    """The complex tensor with these parts."""
    return call_of(b, NUMBERS, pairs, extents(pairs)[:-1], "complex64")


def _joined(b: Builder, real: Value, imaginary: Value) -> Value:
    return _numbers(b, b.cat([b.unsqueeze(part, part.rank) for part in (real, imaginary)], -1))


def _factor(b: Builder, value: Operand) -> Operand | None:
    """What multiplies both parts alike: a number, or a real tensor with a place for the pair."""
    if not _is_real(value):
        return None
    return b.unsqueeze(value, value.rank) if isinstance(value, Value) else value


def _product(b: Builder, call: Call) -> Lowered | None:
    first, second = call["self"], call["other"]
    if isinstance(first, Value) and first.dtype != "complex64":
        first, second = second, first
    one = _parts(b, first)
    if one is None:
        return None
    if (factor := _factor(b, second)) is not None:
        return _numbers(b, b.pointwise("mul", _wide(b, _pairs(b, first), second), factor))
    other = _parts(b, second)
    if other is None:
        return None
    (a, c), (d, e) = one, other
    real = b.pointwise("sub", b.pointwise("mul", a, d), b.pointwise("mul", c, e))
    return _joined(b, real, b.pointwise("add", b.pointwise("mul", a, e), b.pointwise("mul", c, d)))


def _wide(b: Builder, pairs: Value | None, factor: Operand) -> Value:
    """Pairs with as many dimensions as the other operand has, for the pair to stay the last."""
    assert pairs is not None
    missing = factor.rank - (pairs.rank - 1) if isinstance(factor, Value) else 0
    return b.reshape(pairs, (1,) * missing + extents(pairs)) if missing > 0 else pairs


def _quotient(b: Builder, call: Call) -> Lowered | None:
    """By real numbers; complex divisors stay PyTorch's, which scales them against overflow."""
    pairs, factor = _pairs(b, call["self"]), _factor(b, call["other"])
    if pairs is None or factor is None or call.get("rounding_mode") is not None:
        return None
    return _numbers(b, b.pointwise("div", _wide(b, pairs, call["other"]), factor))


def _sum(fn: str, turned: bool = False) -> Rule:
    """Of complex numbers their pairs; real ones join the real part."""

    def rule(b: Builder, call: Call) -> Lowered | None:
        if call.get("alpha", 1) != 1:
            return None
        first, second = (call[name] for name in (("other", "self") if turned else ("self", "other")))
        one, other = _pairs(b, first), _pairs(b, second)
        if one is not None and other is not None:
            rank = max(one.rank, other.rank)
            one, other = (b.reshape(v, (1,) * (rank - v.rank) + extents(v)) for v in (one, other))
            return _numbers(b, b.pointwise(fn, one, other))
        parts = _parts(b, first if other is None else second)
        if parts is None or not _is_real(second if other is None else first):
            return None
        operands = (parts[0], second) if other is None else (first, parts[0])
        changed = other is not None and fn == "sub"
        imaginary = b.pointwise("neg", parts[1]) if changed else parts[1]
        return _joined(b, b.pointwise(fn, *operands), b.expand(imaginary, call.shape))

    return rule


def _is_real(value: Operand) -> bool:
    return value.dtype == PARTS["complex64"] if isinstance(value, Value) else isinstance(value, int | float)


def _negative(b: Builder, call: Call) -> Lowered | None:
    pairs = _pairs(b, call["self"])
    return None if pairs is None else _numbers(b, b.pointwise("neg", pairs))


def _conjugate(b: Builder, call: Call) -> Lowered | None:
    parts = _parts(b, call["self"])
    return None if parts is None else _joined(b, parts[0], b.pointwise("neg", parts[1]))


def _of_both(fn: str, backwards: bool = False) -> Rule:
    """Magnitudes and angles: a function of both parts."""

    def rule(b: Builder, call: Call) -> Lowered | None:
        parts = _parts(b, call["self"])
        return None if parts is None else b.pointwise(fn, *(parts[::-1] if backwards else parts))

    return rule


def _complex(b: Builder, call: Call) -> Lowered | None:
    real, imaginary = (b.expand(call[name], call.shape) for name in ("real", "imag"))
    return _joined(b, real, imaginary) if call.dtype == "complex64" else None


def _polar(b: Builder, call: Call) -> Lowered | None:
    if call.dtype != "complex64":
        return None
    real, imaginary = (
        b.pointwise("mul", call["abs"], b.pointwise(fn, call["angle"])) for fn in ("cos", "sin")
    )
    return _joined(b, real, imaginary)


def _as_real(b: Builder, call: Call) -> Lowered | None:
    return _pairs(b, call["self"])


def _as_complex(b: Builder, call: Call) -> Lowered | None:
    return _numbers(b, call["self"]) if call.dtype == "complex64" else None


def _before(name: str, rule: Rule) -> Rule:
    """``rule`` where complex numbers are met, the ordinary one elsewhere."""

    def either(b: Builder, call: Call) -> Lowered | None:
        met = [value.dtype for value in call.arguments.values() if isinstance(value, Value)]
        found = rule(b, call) if any(dtype in PARTS for dtype in (*met, call.dtype)) else None
        earlier = EARLIER.get(name)
        return earlier(b, call) if found is None and earlier is not None else found

    return either


_RULES: dict[str, Rule] = {
    **dict.fromkeys(["mul", "multiply"], _product),
    **dict.fromkeys(["div", "divide", "true_divide"], _quotient),
    "add": _sum("add"),
    **dict.fromkeys(["sub", "subtract"], _sum("sub")),
    "rsub": _sum("sub", turned=True),
    **dict.fromkeys(["neg", "negative"], _negative),
    **dict.fromkeys(["_conj", "conj", "conj_physical"], _conjugate),
    **dict.fromkeys(["abs", "absolute"], _of_both("hypot")),
    "angle": _of_both("atan2", backwards=True),
    "complex": _complex,
    "polar": _polar,
    "view_as_real": _as_real,
    "view_as_complex": _as_complex,
}
RULES: dict[str, Rule] = {name: _before(name, rule) for name, rule in _RULES.items()}
