"""Scalar functions in Triton are as accurate as PyTorch's: near zero, for large arguments, and for what is
no number.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from egg.expert.emit.names import read_by
from egg.expert.emit.triton.language import TRITON
from egg.expert.emit.triton.scalar import SUPPORTED, cheap, expression, literal
from egg.expert.parts import Unfit
from egg.expert.sizes import named
from egg.expert.writing.imports import sorted_imports
from tests.expert import harness
from tests.expert.programs import apply

TINY = [10.0**power for power in range(-30, 0, 3)]
SPREAD = torch.tensor(
    [
        *torch.linspace(-12, 12, 401).tolist(),
        *TINY,
        *(-t for t in TINY),
        -90.0,
        90.0,
        1e4,
        -1e4,
        0.0,
        0.5,
        -0.5,
        1.5,
    ]
)
POSITIVE = torch.cat([SPREAD.abs(), torch.tensor([1e-38, 1e30])]) + 1e-30
UNIT = torch.tensor([*torch.linspace(-0.99, 0.99, 401).tolist(), *TINY, *(-t for t in TINY)])
ABSOLUTE = {"gelu", "sin", "cos", "tan", "acos", "erfc", "tanhshrink", "celu", "log2", "log10", "frac",
            "gelu_tanh", "lerp", "addcmul", "addcdiv"}  # fmt: skip
"""Where PyTorch's own formula cancels (or the result passes through zero): compared with their scale."""

ONE: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        ["relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "mish", "hardswish",
        "hardsigmoid", "hardtanh", "leaky_relu", "elu", "celu", "selu", "softplus", "softsign",
        "logsigmoid", "exp2", "expm1", "abs", "neg", "sign", "square", "erf", "sin", "cos",
        "floor", "ceil", "round", "trunc", "reciprocal", "frac", "atan", "asinh", "sinh",
        "tanhshrink", "hardshrink", "softshrink", "relu6", "isnan"],
        (),
    ),
    "mul": (None, 2.5), "add": (None, -1.5, 2), "sub": (None, 3.0), "rsub": (None, 3.0), "div": (None, 3.0),
    "pow": (None, 3), "clamp": (None, -1.0, None), "fmod": (None, 1.75), "remainder": (None, -1.75),
    "leaky_relu": (None, 0.2), "elu": (None, 1.3, 1.1, 0.7), "softplus": (None, 2.0, 10.0),
    "celu": (None, 0.7), "hardtanh": (None, -2.0, 2.0), "threshold": (None, 0.5, 7.0),
    "div_floor": (None, 0.75), "gt": (None, 0.0),
}  # fmt: skip


def cases() -> list[tuple[str, list[torch.Tensor], tuple[Any, ...]]]:
    found: list[tuple[str, list[torch.Tensor], tuple[Any, ...]]] = [
        (fn, [SPREAD], scalars) for fn, scalars in ONE.items()
    ]
    found += [(fn, [POSITIVE], ()) for fn in ("log", "log2", "log10", "log1p", "sqrt", "rsqrt")]
    found += [("acosh", [POSITIVE + 1], ())]
    found += [(fn, [UNIT], ()) for fn in ("asin", "acos", "atanh", "log1p", "erfc", "tan", "exp", "cosh")]
    found += [("pow", [POSITIVE[:300]], (None, e)) for e in (0.5, -0.5, 2, 2.0, -1, 0, 1.7, 4)]
    found += [
        ("pow", [UNIT], (2, None)),
        ("pow", [UNIT], (3.0, None)),
        ("clamp", [SPREAD], (None, None, 2.0)),
    ]
    other = SPREAD.flip(0) + 0.3
    for fn in (
        "add",
        "sub",
        "mul",
        "div",
        "maximum",
        "minimum",
        "gt",
        "ge",
        "lt",
        "le",
        "eq",
        "ne",
        "atan2",
        "fmod",
    ):
        found.append((fn, [SPREAD, other], ()))
    divisors = (("fmod", 1.0), ("fmod", -4.0), ("remainder", 1.0), ("remainder", -0.5), ("remainder", 2))
    found += [(fn, [torch.cat([SPREAD, SPREAD * 1e6, SPREAD * 1e37])], (None, by)) for fn, by in divisors]
    found += [("lgamma", [SPREAD], ()), ("erfinv", [UNIT], ()), ("copysign", [SPREAD, -SPREAD], ())]
    for fn in ("fmax", "fmin", "hypot", "logaddexp", "remainder", "prelu"):
        found.append((fn, [SPREAD, torch.full((1,), 0.25) if fn == "prelu" else other], ()))
    found += [("maximum", [SPREAD], (None, 0.5)), ("pow", [POSITIVE[:300], UNIT[:300]], ())]
    found += [
        ("xlogy", [SPREAD.abs(), SPREAD.abs() + 0.1], ()),
        ("lerp", [SPREAD, other, UNIT.abs()[: len(SPREAD)]], ()),
    ]
    found += [
        ("lerp", [SPREAD, other], (None, None, 0.3)),
        ("addcmul", [SPREAD, other, other], (None, None, None, 0.5)),
    ]
    found += [("addcdiv", [SPREAD, other, POSITIVE[: len(SPREAD)] + 1], ())]
    return found


def _kernel(
    number: int, fn: str, operands: list[torch.Tensor], scalars: tuple[Any, ...], out: torch.dtype
) -> str:
    names = [f"v{at}" for at in range(len(operands))]
    dtypes = [str(t.dtype).removeprefix("torch.") for t in operands]
    text = expression(fn, names, scalars, dtypes, str(out).removeprefix("torch."))
    loads = [
        f"    {n} = tl.load({n}_ptr + i, mask=i < size, other=0)" + (" != 0" if d == "bool" else "")
        for n, d in zip(names, dtypes, strict=True)
    ]
    head = f"def kernel{number}({', '.join(f'{n}_ptr' for n in names)}, out_ptr, size, BLOCK: tl.constexpr):"
    lines = ["@triton.jit", head, "    i = tl.arange(0, BLOCK)", *loads]
    lines += [f"    tl.store(out_ptr + i, {text}, mask=i < size)", ""]
    return "\n".join(lines)


def computed(asked: list[tuple[str, list[torch.Tensor], tuple[Any, ...], torch.dtype]]) -> list[torch.Tensor]:
    """Every function in a kernel of its own, all in one module."""
    lines = ["import torch", *TRITON.imports, ""]
    body, inputs = ["def forward(self, *given):", "    outs = []"], list[torch.Tensor]()
    for number, (fn, operands, scalars, dtype) in enumerate(asked):
        operands = [o.expand(operands[0].shape).contiguous() for o in operands]
        lines.append(_kernel(number, fn, operands, scalars, dtype))
        given = ", ".join(f"given[{len(inputs) + at}]" for at in range(len(operands)))
        size = operands[0].numel()
        body.append(f"    outs.append(torch.empty({size}, dtype={dtype}))")
        body.append(
            f"    kernel{number}[(1,)]({given}, outs[-1], {size}, BLOCK={1 << (size - 1).bit_length()})"
        )
        inputs += operands
    return harness.execute("\n".join([*lines, *body, "    return outs"]), inputs, {})


def test_every_function_is_as_accurate_as_in_pytorch() -> None:
    asked = []
    wanted = []
    for fn, operands, scalars in cases():
        operands = [o[: operands[0].numel()] if o.numel() > 1 else o for o in operands]
        size = min(o.numel() for o in operands if o.numel() > 1)
        operands = [o[:size] if o.numel() > 1 else o for o in operands]
        want = apply(fn, [o.double() for o in operands], scalars, "float32")
        asked.append((fn, operands, scalars, torch.bool if want.dtype == torch.bool else torch.float32))
        wanted.append(want)
    wrong = []
    for (fn, operands, scalars, _), got, want in zip(asked, computed(asked), wanted, strict=True):
        if want.dtype == torch.bool:
            if not torch.equal(got, want):
                wrong.append(f"{fn}{scalars}")
            continue
        want = want.float().double()  # what overflows in fp32 may
        finite = torch.isfinite(want) & (want.abs() > 1e-37)
        floor = 1.0 if fn in ABSOLUTE else 0.0
        apart = ((got.double() - want).abs() / want.abs().clamp(min=floor))[finite].max()
        limit = 4e-6 if fn in ("pow", "sinh", "exp2") or "fmod" in fn else 1e-6
        if not apart <= limit or not torch.equal(torch.isnan(got), torch.isnan(want)):
            place = (
                ((got.double() - want).abs() / want.abs().clamp(min=floor)).masked_fill(~finite, 0).argmax()
            )
            at = [o.expand(got.shape)[place].item() for o in operands]
            wrong.append(f"{fn}{scalars} at {at}: {got[place]} for {want[place]}, {float(apart):.1e}")
    assert not wrong, "\n".join(wrong)


def test_nan_and_infinity_are_pytorchs() -> None:
    odd = torch.tensor([math.nan, math.inf, -math.inf, 0.0])
    other = torch.tensor([1.0, math.nan, -math.inf, math.nan])
    single = [
        "relu",
        "sigmoid",
        "tanh",
        "hardtanh",
        "leaky_relu",
        "elu",
        "softplus",
        "hardsigmoid",
        "hardswish",
        "mish",
        "abs",
        "neg",
        "relu6",
    ]
    asked = [(fn, [odd], (), torch.float32) for fn in single]
    asked += [
        (fn, [odd, other], (), torch.float32) for fn in ("maximum", "minimum", "fmax", "fmin", "add", "mul")
    ]
    asked += [
        ("clamp", [odd], (None, -1.0, 1.0), torch.float32),
        ("maximum", [odd], (None, 0.5), torch.float32),
    ]
    for (fn, operands, scalars, _), got in zip(asked, computed(asked), strict=True):
        want = apply(fn, operands, scalars, "float32").float()
        assert torch.equal(got.nan_to_num(7.0), want.nan_to_num(7.0)), (fn, got, want)


def test_integers_stay_integers_and_become_floats_where_pytorch_makes_them() -> None:
    a = torch.tensor([-7, -1, 0, 1, 5, 1 << 20], dtype=torch.int64)
    b = torch.tensor([2, -3, 4, 5, -6, 7], dtype=torch.int64)
    t = a > 0
    whole, real, truth = torch.int64, torch.float32, torch.bool
    asked: list[tuple[str, list[torch.Tensor], tuple[Any, ...], torch.dtype]] = [
        ("add", [a, b], (), whole), ("mul", [a, b], (), whole), ("div", [a, b], (), real),
        ("div", [a], (None, 4), real),
        ("floor_divide", [a, b], (), whole), ("div_trunc", [a, b], (), whole),
        ("remainder", [a, b], (), whole),
        ("fmod", [a, b], (), whole), ("maximum", [a, b], (), whole), ("bitwise_and", [a, b], (), whole),
        ("bitwise_not", [a], (), whole), ("bitwise_not", [t], (), truth), ("logical_not", [a], (), truth),
        ("logical_and", [a, t], (), truth), ("logical_or", [t, a], (), truth), ("eq", [t, t], (), truth),
        ("cast", [t], (), real), ("cast", [a], (), truth), ("cast", [a], (), real),
        ("mul", [a, t], (), whole),
        ("add", [a], (None, 0.5), real), ("neg", [a], (), whole), ("abs", [a], (), whole),
        ("sign", [a], (), whole),
        ("clamp", [a], (None, 0, 3), whole), ("sigmoid", [a], (), real), ("pow", [a], (None, 2), whole),
        ("gt", [a], (None, 0.5), truth), ("bitwise_left_shift", [b.abs()], (None, 2), whole),
    ]  # fmt: skip
    for (fn, operands, scalars, dtype), got in zip(asked, computed(asked), strict=True):
        want = apply(fn, operands, scalars, str(dtype).removeprefix("torch."))
        assert torch.allclose(got.double(), want.double(), rtol=1e-6, atol=0), (fn, scalars, got, want)


def test_casts_round() -> None:
    asked = [("cast", [SPREAD], (), kind) for kind in (torch.float16, torch.bfloat16)]
    for (_, (x,), _, kind), got in zip(asked, computed(asked), strict=True):
        assert torch.equal(got, x.to(kind))


def test_what_there_is_no_formula_for_is_said() -> None:
    with pytest.raises(Unfit, match="digamma"):
        expression("digamma", ["x"], (), ["float32"], "float32")
    assert {"add", "gelu_tanh", "where", "cast"} <= SUPPORTED
    assert cheap("relu")
    assert not cheap("gelu")
    tanh = expression("tanh", ["x"], (), ["float32"], "float32")
    assert sorted_imports(TRITON.imports, {*read_by([tanh])}) == [
        "from triton.language.extra import libdevice"
    ]
    assert sorted_imports(TRITON.imports, {"tl"}) == ["import triton.language as tl"]


def test_literals_are_understood_by_triton() -> None:
    assert [literal(v) for v in (1, 2.5, True, math.inf, -math.inf)] == [
        "1", "2.5", "True", 'float("inf")', 'float("-inf")',
    ]  # fmt: skip


def test_a_product_of_sizes_is_one_operand() -> None:
    area = named("height", (3, 5)) * named("width", (7, 9))
    text = expression("div", ["x"], (None, area), ["float32"], "float32")
    assert eval(text, {}, {"x": 42.0, "height": 3, "width": 7}) == 2.0
