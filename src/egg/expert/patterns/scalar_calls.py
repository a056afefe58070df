"""The scalar functions of pointwise operators as PyTorch text: what the operator was before it was captured.

The names are those of :mod:`egg.expert.emit.triton.scalar`, which spells the same functions in Triton.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from egg.expert.emit.keys import MAX_NAN, MIN_NAN

Texts = Sequence[str | None]
"""Operands in ATen's order; ``None`` for one that is absent."""

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "true_divide": "/", "pow": "**", "gt": ">", "ge": ">=",
    "lt": "<", "le": "<=", "eq": "==", "ne": "!=", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
    "bitwise_left_shift": "<<", "bitwise_right_shift": ">>",
}  # fmt: skip
BITS = {"of_e4m3": "float8_e4m3fn", "of_e5m2": "float8_e5m2"}
"""Bytes that are taken for numbers of 8 bits, in a result of any floating dtype."""
FUNCTIONAL = frozenset(
    [
        "relu6",
        "hardtanh",
        "hardsigmoid",
        "hardswish",
        "threshold",
        "leaky_relu",
        "celu",
        "softplus",
        "softsign",
        "logsigmoid",
        "silu",
        "mish",
        "gelu",
        "tanhshrink",
        "hardshrink",
        "softshrink",
    ]
)
"""Functions that live in ``nn.functional``; all others are in ``torch`` under their own names."""


def scalar_call(fn: str, operands: Texts, tensors: Sequence[bool], result: str) -> str:
    """``fn`` of ``operands`` as an expression; ``tensors`` says which of them are no numbers."""
    if fn in INFIX and len(operands) >= 2:
        return _infix(INFIX[fn], operands)
    rule = _RULES.get(fn)
    if rule is not None:
        return rule(operands)
    if fn in BITS:
        text = f"{operands[0]}.view(torch.{BITS[fn]})"
        return text if result == BITS[fn] else f"{text}.to(torch.{result})"
    if fn == "bits":
        return f"{_tight(operands[0])}.view(torch.{result})"
    if fn in ("max_key", "min_key"):
        x, nan = _tight(operands[0]), MAX_NAN if fn == "max_key" else MIN_NAN
        return f"torch.where({x} == {x}, {_flipped(f'{x}.view(torch.int32)')}, {nan})"
    if fn == "key_value":
        return f"({_flipped(_tight(operands[0]))}).view(torch.float32)"
    if fn == "cast":
        return f"{_tight(operands[0])}.to(torch.{result})"
    if fn in ("maximum", "minimum") and not all(tensors):
        tensor, bound = operands if tensors[0] else reversed(operands)
        return f"torch.clamp({tensor}, {'min' if fn == 'maximum' else 'max'}={bound})"
    space = "nn.functional" if fn in FUNCTIONAL else "torch"
    return f"{space}.{fn}({_listed(operands)})"


def _flipped(bits: str) -> str:
    return f"{bits} ^ (({bits} >> 31) & 0x7FFFFFFF)"


def _infix(sign: str, operands: Texts) -> str:
    """With the ``alpha`` of ``add`` and ``sub`` where it is not 1; powers of plain operands are tight."""
    if sign == "**" and all(re.fullmatch(r"-?[\w.]+", str(operand)) for operand in operands[:2]):
        base = str(operands[0])
        return f"{f'({base})' if base.startswith('-') else base}**{operands[1]}"
    alpha = operands[2] if len(operands) > 2 else None
    second = _tight(operands[1])
    if alpha not in (None, "1", "1.0"):
        second = f"{_tight(alpha)} * {second}"
    return f"{_tight(operands[0])} {sign} {second}"


def _tight(text: str | None) -> str:
    """An operand that binds more tightly than any operator."""
    text = str(text)
    return f"({text})" if " " in text or text.startswith("-") else text


def _listed(operands: Texts) -> str:
    kept = list(operands)
    while kept and kept[-1] is None:
        kept.pop()
    return ", ".join(map(str, kept))


def _clamp(operands: Texts) -> str:
    x, *bounds = operands
    named = [
        f"{word}={bound}" for word, bound in zip(("min", "max"), bounds, strict=False) if bound is not None
    ]
    return f"torch.clamp({', '.join([str(x), *named])})"


def _elu(operands: Texts) -> str:
    """ATen's has a factor outside and one inside, of which PyTorch's function knows nothing."""
    x, alpha, scale, inside = (*operands, *(None,) * (4 - len(operands)))
    if scale in (None, "1", "1.0") and inside in (None, "1", "1.0"):
        return f"nn.functional.elu({_listed((x, alpha))})"
    alpha, scale, inside = alpha or "1.0", scale or "1.0", inside or "1.0"
    return f"torch.where({x} > 0, {scale} * {x}, {alpha} * {scale} * torch.expm1({inside} * {x}))"


def _add_product(fn: str) -> Callable[[Texts], str]:
    def rule(operands: Texts) -> str:
        value = operands[3] if len(operands) > 3 else None
        extra = "" if value in (None, "1", "1.0") else f", value={value}"
        return f"torch.{fn}({_listed(operands[:3])}{extra})"

    return rule


_RULES: dict[str, Callable[[Texts], str]] = {
    "identity": lambda o: str(o[0]),
    "rsub": lambda o: _infix("-", (o[1], o[0], *o[2:])),
    "floor_divide": lambda o: f'torch.div({o[0]}, {o[1]}, rounding_mode="floor")',
    "div_floor": lambda o: f'torch.div({o[0]}, {o[1]}, rounding_mode="floor")',
    "div_trunc": lambda o: f'torch.div({o[0]}, {o[1]}, rounding_mode="trunc")',
    "clamp": _clamp,
    "clamp_min": lambda o: f"torch.clamp({o[0]}, min={o[1]})",
    "clamp_max": lambda o: f"torch.clamp({o[0]}, max={o[1]})",
    "elu": _elu,
    "prelu": lambda o: f"torch.where({o[0]} > 0, {o[0]}, {o[0]} * {_tight(o[1])})",
    "log_sigmoid": lambda o: f"nn.functional.logsigmoid({o[0]})",
    "gelu": lambda o: f"nn.functional.gelu({o[0]})",
    "gelu_tanh": lambda o: f'nn.functional.gelu({o[0]}, approximate="tanh")',
    "round": lambda o: f"torch.round({o[0]})",
    "addcmul": _add_product("addcmul"),
    "addcdiv": _add_product("addcdiv"),
}
