"""The formulas of scalar functions, by the name of the function.

A formula is a function of one :class:`Call` to text. The table at the end says which there are.
"""

from __future__ import annotations

import math

from egg.expert.emit.keys import MAX_NAN, MIN_NAN
from egg.expert.emit.triton.scalar_call import Call, Rule, is_literal, literal, number_text
from egg.expert.emit.triton.types import FLOAT8, TYPES
from egg.expert.graph import HALF
from egg.expert.parts import Unfit
from egg.expert.sizes import Size

# -- formulas -----------------------------------------------------------------------------------------


def _text(form: str) -> Rule:
    """A formula in which ``{0}``, ``{1}`` are the operands."""
    return lambda call: form.format(*(f"{text}" for text in call.operands))


def _sum(sign: str) -> Rule:
    def rule(call: Call) -> str:
        factor = call.given[2] if len(call.given) > 2 else None  # alpha
        second = call[1] if factor in (None, 1) else f"{call[1]} * {number_text(factor)}"
        return f"{call[0]} {sign} {second}"

    return rule


def _divided(call: Call) -> str:
    value = call.given[1] if len(call.given) > 1 else None
    if isinstance(value, (int, float)) and value and math.frexp(float(value))[0] in (0.5, -0.5):
        return f"{call[0]} * {number_text(1.0 / value)}"  # by a power of two: a product is exact
    return f"{call[0]} / {call[1]}"


def _floor_divided(call: Call) -> str:
    a, b = call[0], call[1]
    if call.floating:
        return f"tl.floor({a} / {b})"
    return f"tl.where(({a} % {b} != 0) & (({a} < 0) != ({b} < 0)), {a} // {b} - 1, {a} // {b})"


def _truncated_quotient(call: Call) -> str:
    return f"libdevice.trunc({call[0]} / {call[1]})" if call.floating else f"{call[0]} // {call[1]}"


def _power(call: Call) -> str:
    base, exponent = call[0], call.given[1] if len(call.given) > 1 else None
    special = {
        0: "1.0", 0.5: f"tl.sqrt_rn({base})", 1: base, 2: f"{base} * {base}", 3: f"{base} * {base} * {base}",
        4: f"({base} * {base}) * ({base} * {base})", -0.5: f"tl.rsqrt({base})", -1: f"1.0 / {base}",
        -2: f"1.0 / ({base} * {base})",
    }  # fmt: skip
    if isinstance(exponent, (int, float)) and exponent in special:
        if exponent == 0:
            return f"{base} * 0 + 1" if not call.floating else f"tl.full({base}.shape, 1.0, tl.float32)"
        return special[exponent]
    if not call.floating:
        raise Unfit("an integer power with a varying or a large exponent")
    given = call.given[0] if call.given else None
    if given == 2:
        return f"tl.exp2({call[1]})"
    if given is not None:
        return f"libdevice.pow(tl.full({call[1]}.shape, {literal(given)}, tl.float32), {call[1]})"
    if exponent is not None:
        text = literal(exponent if isinstance(exponent, Size) else float(exponent))
        return f"libdevice.pow({base}, tl.full({base}.shape, {text}, tl.float32))"
    return f"libdevice.pow({base}, {call[1]})"


def _extreme(sign: str) -> Rule:
    """``maximum`` and ``minimum``: whichever operand is NaN wins."""

    def rule(call: Call) -> str:
        a, b = call[0], call[1]
        if not call.floating:
            return f"tl.{'maximum' if sign == '>' else 'minimum'}({a}, {b})"
        if call.given and call.given[-1] is not None:
            return (
                f"tl.where({a} {'<' if sign == '>' else '>'} {b}, {b}, {a})"  # NaN compares false and stays
            )
        return f"tl.where(({a} {sign} {b}) | ({a} != {a}), {a}, {b})"

    return rule


def _between(text: str, low: str | None, high: str | None) -> str:
    """Clamped; a NaN compares false with both bounds and passes."""
    if low is not None:
        text = f"tl.where({text} < {low}, {low}, {text})"
    if high is not None:
        text = f"tl.where({text} > {high}, {high}, {text})"
    return text


def _clamp(call: Call) -> str:
    bounds = (*call.operands[1:], None, None)[:2]
    if bounds == (None, None):
        raise Unfit("a clamp without bounds")
    return _between(call[0], *bounds)


def _hardtanh(call: Call) -> str:
    return _between(call[0], number_text(call.number(1, -1.0)), number_text(call.number(2, 1.0)))


def _threshold(call: Call) -> str:
    return f"tl.where({call[0]} <= {call[1]}, {call[2]}, {call[0]})"


def _leaky_relu(call: Call) -> str:
    return f"tl.where({call[0]} >= 0.0, {call[0]}, {call[0]} * {number_text(call.number(1, 0.01))})"


def _product(*factors: float | str) -> str:
    """Of numbers and texts; what is 1 is left out."""
    number = math.prod(f for f in factors if not isinstance(f, str))
    texts = [f for f in factors if isinstance(f, str)]
    return " * ".join([number_text(float(number)), *texts] if number != 1.0 or not texts else texts)


def _elu(call: Call) -> str:
    x, alpha, scale, inside = call[0], call.number(1, 1.0), call.number(2, 1.0), call.number(3, 1.0)
    negative = _product(alpha * scale, f"libdevice.expm1({_product(inside, x)})")
    return f"tl.where({x} > 0.0, {_product(scale, x)}, {negative})"


def _celu(call: Call) -> str:
    x, alpha = call[0], call.number(1, 1.0)
    inner = x if alpha == 1 else f"{x} / {number_text(float(alpha))}"
    return f"tl.where({x} > 0.0, {x}, {_product(alpha, f'libdevice.expm1({inner})')})"


def _selu(call: Call) -> str:
    alpha, scale = 1.6732632423543772848, 1.0507009873554804934
    return f"tl.where({call[0]} > 0.0, {call[0]} * {scale}, libdevice.expm1({call[0]}) * {alpha * scale})"


def _softplus(call: Call) -> str:
    x, beta, limit = call[0], call.number(1, 1.0), call.number(2, 20.0)
    scaled = _product(float(beta), x)
    inner = f"libdevice.log1p(tl.exp({scaled}))"
    inner = inner if beta == 1 else f"{inner} / {number_text(float(beta))}"
    return f"tl.where({scaled} > {number_text(float(limit))}, {x}, {inner})"


def _mish(call: Call) -> str:
    """``tanh(log(1 + e))`` is ``n / (n + 2)`` with ``n = e (e + 2)``: no logarithm, no cancellation."""
    e = f"tl.exp({_between(call[0], None, '20.0')})"
    return f"{call[0]} * (({e} * ({e} + 2.0)) / ({e} * ({e} + 2.0) + 2.0))"


def _gelu(call: Call) -> str:
    return f"0.5 * {call[0]} * (1.0 + tl.erf({call[0]} * {math.sqrt(0.5)}))"


def _gelu_tanh(call: Call) -> str:
    """``(1 + tanh u) / 2`` is the logistic function of ``2 u``, which is stable on both sides."""
    x, factor = call[0], 2.0 * math.sqrt(2.0 / math.pi)
    return f"{x} / (1.0 + tl.exp(-{factor} * ({x} + 0.044715 * {x} * {x} * {x})))"


def _remainder(call: Call) -> str:
    a, b = call[0], call[1]
    if call.floating:
        if (number := _power_of_two(b)) is not None:
            return _left_over("tl.floor", _as_float(a), number)
        a, b = _as_float(a), _as_float(b, a)
        rest = f"libdevice.fmod({a}, {b})"
        return f"tl.where(({rest} != 0.0) & (({rest} < 0.0) != ({b} < 0.0)), {rest} + {b}, {rest})"
    return f"(({a} % {b}) + {b}) % {b}"


def _fmod(call: Call) -> str:
    if call.floating:
        if (number := _power_of_two(call[1])) is not None:
            return _left_over("libdevice.trunc", _as_float(call[0]), number)
        return f"libdevice.fmod({_as_float(call[0])}, {_as_float(call[1], call[0])})"
    return f"{call[0]} % {call[1]}"


LARGEST_DIVISOR = 2.0**20


def _left_over(rounded: str, a: str, b: float) -> str:
    """What a division by a power of two leaves: quotient and product are exact, and the difference is rounded
    as PyTorch's is. The library's function takes a step for every bit of the quotient."""
    if b == 1.0:
        return f"{a} - {rounded}({a})"
    return f"{a} - {rounded}({a} * {number_text(1.0 / b)}) * {number_text(b)}"


def _power_of_two(text: str) -> float | None:
    """Of a literal from 1 to :data:`LARGEST_DIVISOR`, or its negative: a quotient by a smaller one may
    overflow, by a larger one underflow."""
    try:
        number = float(text.strip("()"))
    except ValueError:  # a variable, or a formula
        return None
    exact = abs(math.frexp(number)[0]) == 0.5
    return number if exact and 1.0 <= abs(number) <= LARGEST_DIVISOR else None


def _as_float(text: str, like: str = "") -> str:
    """libdevice takes tensors of one type, no literals."""
    if is_literal(text):
        return f"tl.full({like}.shape, {text}, tl.float32)" if like else text
    return text


def _cast(call: Call) -> str:
    text, source = call[0], call.dtypes[0] if call.dtypes else "float32"
    if is_literal(text):
        return text
    match call.result:
        case "bool":
            return text if source == "bool" else f"{text} != 0"
        case "float16" | "bfloat16":  # rounded as in memory, then on in fp32
            if source == call.result:
                return text
            rounded = f"{text}.to({TYPES[call.result]})"
            return f"{rounded}.to(tl.float32)"
        case "float32":
            return text if source in ("float32", "float16", "bfloat16") else f"{text}.to(tl.float32)"
        case _ if call.result in FLOAT8 and source in ("float32", "float16", "bfloat16"):
            return f"{text}.to({FLOAT8[call.result]})"
        case _ if call.result in TYPES:
            return text if source == call.result else f"{text}.to({TYPES[call.result]})"
    raise Unfit(f"no kernel computes in {call.result}")


def _of_e4m3(call: Call) -> str:
    """The number that a byte means: as a half its exponent is 8 too small, and its one NaN is a number."""
    if call.result in FLOAT8:
        return _bits(call)
    byte = f"{call[0]}.to(tl.int32)"
    half = f"((({byte} & 128) << 8) | (({byte} & 127) << 7)).to(tl.int16).to(tl.float16, bitcast=True)"
    return f'tl.where(({byte} & 127) == 127, float("nan"), {half}.to(tl.float32) * 256.0)'


def _of_e5m2(call: Call) -> str:
    """The upper byte of a half."""
    return f"({call[0]}.to(tl.int32) << 8).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)"


def _bits(call: Call) -> str:
    """Floats of 16 bits are in fp32 registers, whole numbers perhaps in wider ones: first they go back."""
    text, source, result = call[0], call.dtypes[0], call.result
    known = {**TYPES, **FLOAT8}
    if is_literal(text) or not {source, result} <= known.keys():
        raise Unfit(f"no kernel takes bits of {source} for {result}")
    text = text if source in FLOAT8 else f"{text}.to({known[source]})"
    text = f"{text}.to({known[result]}, bitcast=True)"
    return f"{text}.to(tl.float32)" if result in HALF else text


def _key(nan: int) -> Rule:
    """A float as a whole number of the same order: the bits of a negative one run the other way."""

    def rule(call: Call) -> str:
        if is_literal(call[0]):
            raise Unfit("the key of a number that is written out")
        return f"tl.where({call[0]} == {call[0]}, {_flipped(f'{call[0]}.to(tl.int32, bitcast=True)')}, {nan})"

    return rule


def _flipped(bits: str) -> str:
    return f"{bits} ^ (({bits} >> 31) & 0x7FFFFFFF)"


def _lerp(call: Call) -> str:
    """Like PyTorch, from the nearer end, so that both ends are met exactly."""
    a, b, w = call[0], call[1], call[2]
    return (
        f"tl.where(tl.abs({w} + 0.0 * {a}) < 0.5, {a} + {w} * ({b} - {a}), {b} - ({b} - {a}) * (1.0 - {w}))"
    )


def _add_product(form: str) -> Rule:
    def rule(call: Call) -> str:
        factor = call.number(3, 1.0)
        scaled = call[1] if factor == 1 else f"{number_text(factor)} * {call[1]}"
        return f"{call[0]} + " + form.format(scaled, call[2])

    return rule


def _absolute(call: Call) -> str:
    return f"tl.abs({call[0]})"


def _sign(call: Call) -> str:
    one = "1.0" if call.floating else "1"
    zero = "0.0" if call.floating else "0"
    return f"tl.where({call[0]} > 0, {one}, tl.where({call[0]} < 0, -{one}, {zero}))"


def _not(call: Call) -> str:
    return f"{call[0]} == 0"


def _truth(sign: str) -> Rule:
    return lambda call: f"({call[0]} != 0) {sign} ({call[1]} != 0)"


def _bitwise_not(call: Call) -> str:
    return f"{call[0]} == 0" if call.result == "bool" else f"~{call[0]}"


_PLAIN = {
    "mul": "{0} * {1}", "square": "{0} * {0}", "neg": "-{0}", "reciprocal": "1.0 / {0}",
    "sqrt": "tl.sqrt_rn({0})", "rsqrt": "tl.rsqrt({0})", "exp": "tl.exp({0})", "exp2": "tl.exp2({0})",
    "exp_exact": "libdevice.exp({0})", "expm1": "libdevice.expm1({0})", "log": "tl.log({0})",
    "log2": "tl.log2({0})", "log10": "libdevice.log10({0})", "log1p": "libdevice.log1p({0})",
    "sin": "tl.sin({0})", "cos": "tl.cos({0})", "tan": "libdevice.tan({0})", "asin": "libdevice.asin({0})",
    "acos": "libdevice.acos({0})", "atan": "libdevice.atan({0})", "atan2": "libdevice.atan2({0}, {1})",
    "sinh": "libdevice.sinh({0})", "cosh": "libdevice.cosh({0})", "asinh": "libdevice.asinh({0})",
    "acosh": "libdevice.acosh({0})", "atanh": "libdevice.atanh({0})", "tanh": "libdevice.tanh({0})",
    "erf": "tl.erf({0})", "erfc": "libdevice.erfc({0})", "floor": "tl.floor({0})", "ceil": "tl.ceil({0})",
    "round": "libdevice.rint({0})", "trunc": "libdevice.trunc({0})", "frac": "{0} - libdevice.trunc({0})",
    "fmax": "tl.maximum({0}, {1})", "fmin": "tl.minimum({0}, {1})",
    "prelu": "tl.where({0} > 0.0, {0}, {0} * {1})", "softsign": "{0} / (1.0 + tl.abs({0}))",
    "sigmoid": "1.0 / (1.0 + tl.exp(-{0}))", "silu": "{0} / (1.0 + tl.exp(-{0}))",
    "tanhshrink": "{0} - libdevice.tanh({0})", "gt": "{0} > {1}", "ge": "{0} >= {1}", "lt": "{0} < {1}",
    "le": "{0} <= {1}", "eq": "{0} == {1}", "ne": "{0} != {1}", "isnan": "{0} != {0}",
    "isinf": 'tl.abs({0}) == float("inf")', "bitwise_and": "{0} & {1}", "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}", "bitwise_left_shift": "{0} << {1}", "bitwise_right_shift": "{0} >> {1}",
    "where": "tl.where({0}, {1}, {2})", "masked_fill": "tl.where({1}, {2}, {0})", "identity": "{0}",
    "hypot": "libdevice.hypot({0}, {1})", "copysign": "libdevice.copysign({0}, {1})",
    "lgamma": "libdevice.lgamma({0})", "erfinv": "libdevice.erfinv({0})",
}  # fmt: skip
"""Formulas in which ``{0}`` and ``{1}`` are the operands."""

RULES: dict[str, Rule] = {
    **{name: _text(form) for name, form in _PLAIN.items()},
    "add": _sum("+"),
    "sub": _sum("-"),
    "rsub": lambda call: f"{call[1]} - {call[0]}",
    "div": _divided,
    "true_divide": _divided,
    "floor_divide": _floor_divided,
    "div_floor": _floor_divided,
    "div_trunc": _truncated_quotient,
    "pow": _power,
    "abs": _absolute,
    "sign": _sign,
    "sgn": _sign,
    "fmod": _fmod,
    "remainder": _remainder,
    "maximum": _extreme(">"),
    "minimum": _extreme("<"),
    "clamp": _clamp,
    "clamp_min": lambda call: _between(call[0], call[1], None),
    "clamp_max": lambda call: _between(call[0], None, call[1]),
    "relu": lambda call: _between(call[0], "0.0" if call.floating else "0", None),
    "relu6": lambda call: _between(call[0], "0.0", "6.0"),
    "hardtanh": _hardtanh,
    "hardsigmoid": lambda call: f"{_between(f'({call[0]} + 3.0)', '0.0', '6.0')} * {1 / 6}",
    "hardswish": lambda call: f"{call[0]} * {_between(f'({call[0]} + 3.0)', '0.0', '6.0')} * {1 / 6}",
    "threshold": _threshold,
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "celu": _celu,
    "selu": _selu,
    "softplus": _softplus,
    "logsigmoid": lambda call: (
        f"{_between(call[0], None, '0.0')} - libdevice.log1p(tl.exp(-tl.abs({call[0]})))"
    ),
    "log_sigmoid": lambda call: RULES["logsigmoid"](call),
    "mish": _mish,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "hardshrink": lambda call: f"tl.where(tl.abs({call[0]}) > {call.number(1, 0.5)}, {call[0]}, 0.0)",
    "softshrink": lambda call: (
        f"tl.where({call[0]} > {call.number(1, 0.5)}, {call[0]} - {call.number(1, 0.5)}, "
        f"tl.where({call[0]} < -{call.number(1, 0.5)}, {call[0]} + {call.number(1, 0.5)}, 0.0 * {call[0]}))"
    ),
    "logical_and": _truth("&"),
    "logical_or": _truth("|"),
    "logical_xor": lambda call: f"({call[0]} != 0) != ({call[1]} != 0)",
    "logical_not": _not,
    "bitwise_not": _bitwise_not,
    "of_e4m3": _of_e4m3,
    "of_e5m2": _of_e5m2,
    "bits": _bits,
    "max_key": _key(MAX_NAN),
    "min_key": _key(MIN_NAN),
    "key_value": lambda call: f"({_flipped(call[0])}).to(tl.float32, bitcast=True)",
    "cast": _cast,
    "lerp": _lerp,
    "addcmul": _add_product("{0} * {1}"),
    "addcdiv": _add_product("{0} / {1}"),
    "logaddexp": lambda call: (
        f"tl.maximum({call[0]}, {call[1]}) + libdevice.log1p(tl.exp(-tl.abs({call[0]} - {call[1]})))"
    ),
    "xlogy": lambda call: (
        f"tl.where(({call[0]} == 0.0) & ({call[1]} == {call[1]}), 0.0, {call[0]} * tl.log({call[1]}))"
    ),
}

CHEAP = frozenset(
    {"add", "sub", "rsub", "mul", "neg", "abs", "square", "maximum", "minimum", "fmax", "fmin", "clamp",
     "clamp_min", "clamp_max", "relu", "relu6", "hardtanh", "hardsigmoid", "hardswish", "threshold",
     "leaky_relu", "prelu", "sign", "sgn", "floor", "ceil", "round", "trunc", "gt", "ge", "lt", "le",
     "eq", "ne", "isnan", "isinf", "logical_and", "logical_or", "logical_xor", "logical_not",
     "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "bitwise_left_shift",
     "bitwise_right_shift", "where", "masked_fill", "cast", "identity", "lerp", "addcmul", "hardshrink",
     "softshrink", "of_e4m3", "of_e5m2", "bits", "max_key", "min_key", "key_value"}
)  # fmt: skip
"""Without a special function or a division."""
