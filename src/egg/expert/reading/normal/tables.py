"""Pointwise operators, most of them a line in a table, and tensors made of nothing."""

from __future__ import annotations

from egg.expert.graph import Value
from egg.expert.reading.normal.builder import Builder, Call, Lowered, Operand, Rule, extents

_OF_ONE = """
abs sign sgn square neg reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin
acos atan sinh cosh asinh acosh atanh tanh erf erfc floor ceil trunc frac relu relu6 selu silu mish
sigmoid hardswish hardsigmoid log_sigmoid isnan isinf logical_not bitwise_not lgamma erfinv
"""
_OF_TWO = """
mul maximum minimum fmax fmin fmod remainder atan2 logaddexp xlogy hypot copysign gt ge lt le eq ne
logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor bitwise_left_shift
bitwise_right_shift floor_divide
"""

_DIRECT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        _OF_ONE.split(),
        ("self",),
    ),
    **dict.fromkeys(
        _OF_TWO.split(),
        ("self", "other"),
    ),
    "pow": ("self", "exponent"),
    "clamp": ("self", "min", "max"),
    "clamp_min": ("self", "min"),
    "clamp_max": ("self", "max"),
    "hardtanh": ("self", "min_val", "max_val"),
    "leaky_relu": ("self", "negative_slope"),
    "elu": ("self", "alpha", "scale", "input_scale"),
    "celu": ("self", "alpha"),
    "softplus": ("self", "beta", "threshold"),
    "threshold": ("self", "threshold", "value"),
    "hardshrink": ("self", "lambd"),
    "softshrink": ("self", "lambd"),
}
"""Function and the arguments of the schema that are its operands."""

_OTHER_NAMES = {
    "absolute": "abs", "negative": "neg", "multiply": "mul", "clip": "clamp", "greater": "gt", "less": "lt",
    "greater_equal": "ge", "less_equal": "le", "not_equal": "ne", "__and__": "bitwise_and",
    "__or__": "bitwise_or", "__xor__": "bitwise_xor", "__lshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift", "arctan": "atan", "arcsin": "asin", "arccos": "acos",
    "special_expm1": "expm1", "special_log1p": "log1p", "special_xlogy": "xlogy", "special_erf": "erf",
    "special_expit": "sigmoid", "fix": "trunc", "special_gammaln": "lgamma", "special_erfinv": "erfinv",
    "special_erfc": "erfc", "special_exp2": "exp2",
}  # fmt: skip


def _direct(fn: str, operands: tuple[str, ...]) -> Rule:
    def rule(b: Builder, call: Call) -> Lowered | None:
        given = [call[name] for name in operands]
        if fn == "mul":
            given[1] = _number(b, *given)
        if fn.startswith("bitwise") and call.dtype == "bool" and not all(isinstance(g, Value) for g in given):
            return None
        return b.pointwise(fn, *given, dtype=call.dtype)

    return rule


def _sum(fn: str) -> Rule:
    def rule(b: Builder, call: Call) -> Lowered:
        first, second, factor = call["self"], call["other"], call.get("alpha", 1)
        if factor != 1:
            second = b.pointwise("mul", second, factor) if isinstance(second, Value) else second * factor
        if fn == "rsub":
            return b.pointwise("sub", second, first, dtype=call.dtype)
        return b.pointwise(fn, first, second, dtype=call.dtype)

    return rule


def _quotient(b: Builder, call: Call) -> Lowered:
    fn = {None: "div", "floor": "floor_divide", "trunc": "div_trunc"}[call.get("rounding_mode")]
    return b.pointwise(fn, call["self"], _number(b, call["self"], call["other"]), dtype=call.dtype)


def _number(b: Builder, first: Operand, second: Operand) -> Operand:
    """The second operand of two, where it is a tensor without dimensions that holds a known number: that
    number, so that one which follows from the sizes gets a rule."""
    maker = b.producers.get(second.name) if isinstance(second, Value) and not second.rank else None
    known = maker is not None and maker.op == "constant" and "fill" in maker.attributes
    return maker["fill"] if known and maker is not None and isinstance(first, Value) else second


def _round(b: Builder, call: Call) -> Lowered | None:
    return None if call.get("decimals", 0) else b.pointwise("round", call["self"], dtype=call.dtype)


def _gelu(b: Builder, call: Call) -> Lowered:
    return b.pointwise("gelu_tanh" if call["approximate"] == "tanh" else "gelu", call["self"])


def _add_product(fn: str) -> Rule:
    def rule(b: Builder, call: Call) -> Lowered:
        product = b.pointwise(fn, call["tensor1"], call["tensor2"])
        factor = call.get("value", 1)
        product = b.pointwise("mul", product, factor) if factor != 1 else product
        return b.pointwise("add", call["self"], product, dtype=call.dtype)

    return rule


def _lerp(b: Builder, call: Call) -> Lowered:
    return b.pointwise("lerp", call["self"], call["end"], call["weight"], dtype=call.dtype)


def _prelu(b: Builder, call: Call) -> Lowered:
    value, weight = call["self"], call["weight"]
    if value.rank > 2 and extents(weight) != (1,):
        weight = b.reshape(weight, (-1, *(1,) * (value.rank - 2)))
    return b.pointwise("prelu", value, weight)


def _rrelu(b: Builder, call: Call) -> Lowered | None:
    return (
        None
        if call["training"]
        else b.pointwise("leaky_relu", call["self"], (call["lower"] + call["upper"]) / 2)
    )


def _glu(b: Builder, call: Call) -> Lowered:
    value, dim = call["self"], call["dim"]
    half = extents(value)[dim] // 2
    return b.pointwise(
        "mul", b.slice(value, dim, 0, half), b.pointwise("sigmoid", b.slice(value, dim, half, half))
    )


def _ldexp(b: Builder, call: Call) -> Lowered:
    """By PyTorch's own formula. A power of two is exact in fp32; of 64 bits it is one of 64 bits."""
    power = b.pointwise("exp2", b.cast(call["other"], "float64" if call.dtype == "float64" else "float32"))
    return b.pointwise("mul", call["self"], power, dtype=call.dtype)


def _logit(b: Builder, call: Call) -> Lowered:
    value, eps = call["self"], call.get("eps")
    value = b.pointwise("clamp", value, eps, 1.0 - eps) if eps is not None else value
    return b.pointwise("log", b.pointwise("div", value, b.pointwise("sub", 1.0, value)))


def _cast(b: Builder, call: Call) -> Lowered:
    """Numbers that were read from bytes are exact in any wider dtype: they are read as that at once."""
    value = call["self"]
    maker = b.producers.get(value.name)
    read = maker is not None and maker.get("fn") in ("of_e4m3", "of_e5m2") and "float8" in value.dtype
    if maker is not None and read and call.dtype in ("float32", "float16", "bfloat16"):
        return b.pointwise(maker["fn"], b.values[str(maker.inputs[0])], dtype=call.dtype)
    return b.cast(value, call.dtype)


def _same(b: Builder, call: Call) -> Lowered:
    return call["self"] if "self" in call.arguments else call["input"]


def _where(b: Builder, call: Call) -> Lowered | None:
    if "other" not in call.arguments:
        return None
    return b.cast(b.where(call["condition"], call["self"], call["other"]), call.dtype)


def _masked_fill(b: Builder, call: Call) -> Lowered:
    number = call["value"]
    number = b.cast(number, call.dtype) if isinstance(number, Value) else b.fill((), number, call.dtype)
    return b.where(call["mask"], number, call["self"])


# -- tensors made of nothing ---------------------------------------------------------------------------


def _filled(number: float | None) -> Rule:
    """A constant tensor. Memory without contents counts as zeros: it is written before it is read."""

    def rule(b: Builder, call: Call) -> Lowered:
        given = number if number is not None else call.get("fill_value", call.get("value", call.get("s")))
        if isinstance(given, Value):
            return b.expand(b.cast(given, call.dtype), call.shape)
        return b.fill(call.shape, given, call.dtype)

    return rule


def _copied(b: Builder, call: Call) -> Lowered:
    return b.expand(b.cast(call["src"], call.dtype), call.shape)


def _range(b: Builder, call: Call) -> Lowered:
    start, step = call.get("start", 0), call.get("step", 1)
    return b.range(call.shape[0], call.dtype, start, step)


def _linspace(b: Builder, call: Call) -> Lowered | None:
    start, end, steps = call["start"], call["end"], call.shape[0]
    if any(isinstance(v, Value) for v in (start, end)) or "float" not in call.dtype:
        return None
    return b.range(steps, call.dtype, float(start), (end - start) / (steps - 1) if steps > 1 else 0.0)


def _eye(b: Builder, call: Call) -> Lowered:
    rows, columns = call.shape
    row = b.reshape(b.range(rows, "int64"), (rows, 1))
    return b.cast(b.pointwise("eq", row, b.range(columns, "int64")), call.dtype)


def _one_hot(b: Builder, call: Call) -> Lowered | None:
    """Each class compared with the one that is meant; without their number only the values say how many."""
    value, classes = call["self"], call.get("num_classes", -1)
    if classes < 1:
        return None
    place = b.range(classes, "int64")
    return b.cast(b.pointwise("eq", b.unsqueeze(value, value.rank), place), call.dtype)


def _triangle(upper: bool) -> Rule:
    def rule(b: Builder, call: Call) -> Lowered:
        value = call["self"]
        return b.one(
            "triangle", [value], extents(value), value.dtype, upper=upper, diagonal=call.get("diagonal", 0)
        )

    return rule


def _random(fn: str) -> Rule:
    return lambda b, call: b.one("random", [], call.shape, call.dtype, fn, fn=fn)


def _dropout(b: Builder, call: Call) -> Lowered:
    """Gone where it does nothing; one that drops everything is zero."""
    value, p = call["input"], call["p"]
    if not call["train"] or p == 0:
        return value
    if p == 1:
        return b.fill(extents(value), 0, value.dtype)
    return b.one("random", [value], extents(value), value.dtype, "dropout", fn="dropout", p=p)


def _rare_dropout(b: Builder, call: Call) -> Lowered | None:
    return None if call["train"] and call["p"] else call["input"]


RULES: dict[str, Rule] = {
    **{fn: _direct(fn, operands) for fn, operands in _DIRECT.items()},
    **{other: _direct(fn, _DIRECT[fn]) for other, fn in _OTHER_NAMES.items()},
    **dict.fromkeys(["sub", "subtract"], _sum("sub")),
    "add": _sum("add"),
    "rsub": _sum("rsub"),
    **dict.fromkeys(["div", "divide", "true_divide"], _quotient),
    "round": _round,
    "gelu": _gelu,
    "addcmul": _add_product("mul"),
    "addcdiv": _add_product("div"),
    "lerp": _lerp,
    "prelu": _prelu,
    "rrelu": _rrelu,
    "glu": _glu,
    "logit": _logit,
    "ldexp": _ldexp,
    **dict.fromkeys(["to", "_to_copy", "type_as"], _cast),
    **dict.fromkeys(
        [
            "clone",
            "contiguous",
            "detach",
            "alias",
            "lift_fresh",
            "lift_fresh_copy",
            "resolve_conj",
            "resolve_neg",
        ],
        _same,
    ),
    "where": _where,
    "masked_fill": _masked_fill,
    **dict.fromkeys(
        ["zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty", "zero"], _filled(0)
    ),
    **dict.fromkeys(["ones", "ones_like", "new_ones"], _filled(1)),
    **dict.fromkeys(["full", "full_like", "new_full", "scalar_tensor", "fill"], _filled(None)),
    "copy": _copied,
    "arange": _range,
    "linspace": _linspace,
    "eye": _eye,
    "one_hot": _one_hot,
    "tril": _triangle(upper=False),
    "triu": _triangle(upper=True),
    **dict.fromkeys(["rand", "rand_like"], _random("rand")),
    **dict.fromkeys(["randn", "randn_like"], _random("randn")),
    "dropout": _dropout,
    **dict.fromkeys(["feature_dropout", "alpha_dropout", "feature_alpha_dropout"], _rare_dropout),
}
