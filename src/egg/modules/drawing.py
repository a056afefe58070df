"""The expression that makes a tensor like the one a slot was described from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod
from typing import Any

from egg.modules.slots import Slot

_FLOATS = frozenset({"float32", "float64", "float16", "bfloat16"})


def drawn(slot: Slot) -> str:
    """Python that makes one: legal values, the slot's dtype, and its strides where these are not usual."""
    if _dense(slot.shape, slot.stride) or _placed(slot):
        return _made(slot, slot.shape)
    order = sorted(range(len(slot.shape)), key=lambda d: (-slot.stride[d], d))
    packed = tuple(slot.shape[d] for d in order)
    if _dense(packed, tuple(slot.stride[d] for d in order)):
        back = tuple(order.index(d) for d in range(len(order)))
        return f"{_grouped(_made(slot, packed))}.permute({_listed(back)})"
    narrow = tuple(1 if s == 0 else n for n, s in zip(slot.shape, slot.stride, strict=True))
    if _dense(narrow, tuple(s or 1 for s in slot.stride)):
        return f"{_grouped(_made(slot, narrow))}.expand({_listed(slot.shape)})"
    span = 1 + sum((n - 1) * s for n, s in zip(slot.shape, slot.stride, strict=True))
    return f"{_grouped(_made(slot, (span,)))}.as_strided({_shape(slot.shape)}, {_shape(slot.stride)})"


def _placed(slot: Slot) -> bool:
    """Whether the values depend on their places, so that no other layout can be drawn and turned."""
    if slot.values.kind == "additive" and slot.values.high > 0:
        return False
    if slot.values.kind not in ("listed", "steps", "triangle", "additive"):
        return False
    return slot.values.kind == "listed" or not _dense(slot.shape[-2:], slot.stride[-2:])


def number(value: Any) -> str:
    """A literal that reads back as ``value``."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _made(slot: Slot, shape: tuple[int, ...]) -> str:
    values, dtype = slot.values, slot.dtype
    sizes, kind = _shape(shape), f"dtype=torch.{dtype}"
    low, high = values.low, values.high
    match values.kind:
        case "filled":
            value = bool(low) if dtype == "bool" else low if _real(dtype) else int(low)
            return f"torch.full({sizes}, {number(value)}, {kind})"
        case "listed":
            flat = f"torch.tensor([{', '.join(map(number, values.numbers))}], {kind})"
            return f"{flat}.reshape({sizes})"
        case "share":
            return f"torch.rand({sizes}) < {high!r}"
        case "integers":
            return f"torch.randint({int(low)}, {int(high) + 1}, {sizes}, {kind})"
        case "distinct" if (count := math.prod(shape)) <= (span := int(high) + 1 - int(low)):
            drawn = f"torch.randperm({span}, {kind})[:{count}].reshape({sizes})"
            return f"{drawn} + {int(low)}" if low else drawn
        case "distinct":
            return f"torch.randint({int(low)}, {int(high) + 1}, {sizes}, {kind})"
        case "padded":
            text = f"torch.randint(0, {int(high) + 1}, {sizes}, {kind})"
            return f"{text}.masked_fill(torch.rand({sizes}) < {values.numbers[0]!r}, {int(low)})"
        case "steps":
            last = shape[-1] if shape else 1
            steps = f"torch.arange({int(low)}, {int(low) + last}, {kind})"
            return steps if len(shape) == 1 else f"{steps}.expand({_listed(shape)}).contiguous()"
        case "triangle":
            form = "triu" if low else "tril"
            square = f"torch.ones({_shape(shape[-2:])}, dtype=torch.bool).{form}()"
            return square if len(shape) == 2 else f"{square}.expand({_listed(shape)}).contiguous()"
        case "additive" if high == 0.0:
            square = f"torch.full({_shape(shape[-2:])}, {number(low)}, {kind}).triu(1)"
            return square if len(shape) == 2 else f"{square}.expand({_listed(shape)}).contiguous()"
        case "additive":
            return f"torch.zeros({sizes}, {kind}).masked_fill(torch.rand({sizes}) < {high!r}, {number(low)})"
        case "uniform":
            text = f"torch.rand({sizes}{_made_as(dtype)})"
            return _cast(_scaled(text, low, high - low), dtype)
        case "normal":
            text = f"torch.randn({sizes}{_made_as(dtype)})"
            if (low, high) == (0.0, 1.0) or _near(low, high):
                return _cast(text, dtype)
            return _cast(_scaled(text, low if abs(low) > 0.1 * high else 0.0, high), dtype)


def _scaled(text: str, start: float, factor: float) -> str:
    start, factor = float(f"{start:.2g}"), float(f"{factor:.2g}")
    scaled = text if factor == 1.0 else f"{text} * {factor!r}"
    if start == 0.0:
        return scaled
    return f"{scaled} {'-' if start < 0 else '+'} {abs(start)!r}"


def _near(mean: float, deviation: float) -> bool:
    """A sample of the standard normal distribution, as examples mostly are."""
    return abs(mean) < 0.1 and 0.8 < deviation < 1.25


def _real(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex"))


def _made_as(dtype: str) -> str:
    """How random numbers are asked for in a dtype; there are none of 8 bits."""
    return "" if dtype == "float32" or not _direct(dtype) else f", dtype=torch.{dtype}"


def _direct(dtype: str) -> bool:
    return dtype in _FLOATS or dtype.startswith("complex")


def _cast(text: str, dtype: str) -> str:
    return text if _direct(dtype) else f"{_grouped(text)}.to(torch.{dtype})"


def _grouped(text: str) -> str:
    """What a method is called on: arithmetic in parentheses."""
    return f"({text})" if " * " in text or " + " in text or " - " in text or " < " in text else text


def _dense(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether a tensor of that form is contiguous."""
    step = 1
    for size, own in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1 and own != step:
            return prod(shape) == 0
        step *= size
    return True


def _shape(sizes: Sequence[int]) -> str:
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes))
