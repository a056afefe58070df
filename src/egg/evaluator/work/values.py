"""Arithmetic of Triton's IR on what is known of a launch: numbers, and tiles of numbers.

A Python number is a scalar, or a tile that holds the same number everywhere. Any other tile
is a torch tensor with the rank of its type whose dimensions may be 1 where its values repeat:
``splat`` and ``broadcast`` cost nothing, and a row plus a column becomes a tile only where the
two are added.

What comes out of memory is not known here. Integers read from it are *guessed*: some number
that stands for any, and everything computed from it is guessed too. Comparisons of guessed
numbers come out the way that lets a kernel work: an index is in bounds, and is not the
special value it is compared with.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from egg.evaluator.work.ttir import Type

Value = int | float | torch.Tensor


@dataclass(frozen=True, slots=True)
class Number:
    """An integer, truth value or known floating-point number; or a tile of them."""

    value: Value
    guessed: bool = False


@dataclass(frozen=True, slots=True)
class Pointer:
    """Into the argument of that name, or into what is not known (``""``); offsets in bytes."""

    argument: str
    offset: Value
    guessed: bool = False


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A tensor descriptor; the shape of its tensor is ``None`` where it is not known."""

    argument: str
    block: tuple[int, ...]
    itemsize: int
    shape: tuple[int, ...] | None


Known = Number | Pointer | Descriptor | None
"""``None`` is a floating-point value, of which only the type matters."""


def guess(type: Type, salt: int) -> Number:
    """Numbers that could have been read from memory: spread out, not negative, the same in every run.

    A truth value is taken to be true.
    """
    if type.element == "i1":
        return Number(1, True)
    bits = min(type.bits - 1, 20)
    if not type.shape:
        return Number((salt * 2_654_435_761 + 977) % (1 << bits), True)
    index = count_up(0, type.elements).reshape(type.shape)
    return Number(((index + salt * 7_919 + 1) * 2_654_435_761 >> 7) % (1 << bits), True)


def tensor_of(value: Value) -> torch.Tensor:
    """On the CPU, wherever tensors go by default."""
    if isinstance(value, torch.Tensor):
        return value
    return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else torch.int64, device="cpu")


def count_up(start: int, end: int) -> torch.Tensor:
    return torch.arange(start, end, dtype=torch.int64, device="cpu")


def at_shape(value: Value, shape: tuple[int, ...]) -> torch.Tensor:
    """A tile with all its elements, as a view."""
    tile = tensor_of(value)
    return (tile if tile.dim() == len(shape) else tile.reshape((1,) * len(shape))).expand(shape)


def _wrapped(value: Value, bits: int) -> Value:
    """Two's complement of that many bits; tiles are only touched where one element overflows."""
    if bits >= 64:
        return value if isinstance(value, torch.Tensor) else _signed(int(value), 64)
    if bits == 1:
        return value & 1 if isinstance(value, torch.Tensor) else int(value) & 1
    if not isinstance(value, torch.Tensor):
        return _signed(int(value), bits)
    half = 1 << (bits - 1)
    if value.numel() and (int(value.max()) >= half or int(value.min()) < -half):
        return ((value + half) & (2 * half - 1)) - half
    return value


def _signed(value: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return value if -half <= value < half else ((value + half) & (2 * half - 1)) - half


def _unsigned(value: Value, bits: int) -> Value:
    """As an unsigned number; 64 bits do not fit and are taken to be non-negative already."""
    return value if bits >= 63 else value & ((1 << bits) - 1)  # pyright: ignore[reportOperatorIssue]


def _divided(a: Value, b: Value, rounding: str) -> Value:
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        x, y = tensor_of(a), tensor_of(b)
        if rounding == "ceil":
            return -torch.div(-x, y, rounding_mode="floor")
        return torch.div(x, y, rounding_mode=rounding)
    floor = int(a) // int(b)
    if rounding == "floor":
        return floor
    if rounding == "ceil":
        return -(-int(a) // int(b))
    return floor if int(a) % int(b) == 0 or floor >= 0 else floor + 1


def _remainder(a: Value, b: Value) -> Value:
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return torch.fmod(tensor_of(a), tensor_of(b))
    return int(math.fmod(a, b)) if abs(a) < 1 << 53 else a - _divided(a, b, "trunc") * b


def _least(a: Value, b: Value) -> Value:
    return _either(torch.minimum, min, a, b)


def _most(a: Value, b: Value) -> Value:
    return _either(torch.maximum, max, a, b)


def _either(tiles: Callable[..., Any], scalars: Callable[..., Any], a: Value, b: Value) -> Value:
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return tiles(tensor_of(a), tensor_of(b))
    return scalars(a, b)


def _shift(a: Value, b: Value, how: Callable[[Any, Any], Any]) -> Value:
    amount = b.clamp(0, 63) if isinstance(b, torch.Tensor) else min(max(int(b), 0), 63)
    return how(a, amount)


_SIGNED: dict[str, Callable[[Any, Any], Any]] = {
    "addi": operator.add,
    "subi": operator.sub,
    "muli": operator.mul,
    "andi": operator.and_,
    "ori": operator.or_,
    "xori": operator.xor,
    "minsi": _least,
    "maxsi": _most,
    "shli": lambda a, b: _shift(a, b, operator.lshift),
    "shrsi": lambda a, b: _shift(a, b, operator.rshift),
}
_UNSIGNED: dict[str, Callable[[Any, Any], Any]] = {
    "minui": _least,
    "maxui": _most,
    "shrui": lambda a, b: _shift(a, b, operator.rshift),
}
_DIVISIONS: dict[str, Callable[[Any, Any], Any]] = {
    "divsi": lambda a, b: _divided(a, b, "trunc"),
    "divui": lambda a, b: _divided(a, b, "trunc"),
    "floordivsi": lambda a, b: _divided(a, b, "floor"),
    "ceildivsi": lambda a, b: _divided(a, b, "ceil"),
    "ceildivui": lambda a, b: _divided(a, b, "ceil"),
    "remsi": _remainder,
    "remui": _remainder,
}
_FLOATS: dict[str, Callable[[Any, Any], Any]] = {
    "addf": operator.add,
    "subf": operator.sub,
    "mulf": operator.mul,
    "minimumf": _least,
    "minnumf": _least,
    "maximumf": _most,
    "maxnumf": _most,
}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}

INTEGER_OPS = frozenset((*_SIGNED, *_UNSIGNED, *_DIVISIONS, "mulhiui"))


def integer_op(name: str, a: Number, b: Number, bits: int) -> Number:
    """``arith.addi`` and its kind. A division by zero gives a guess: no program means it."""
    guessed = a.guessed or b.guessed
    x, y = a.value, b.value
    if name in _DIVISIONS:
        if name.endswith("ui"):
            x, y = _unsigned(x, bits), _unsigned(y, bits)
        if isinstance(y, torch.Tensor):
            zero = y == 0
            if bool(zero.any()):
                y, guessed = y.masked_fill(zero, 1), True
        elif y == 0:
            y, guessed = 1, True
        return Number(_wrapped(_DIVISIONS[name](x, y), bits), guessed)
    if name in _UNSIGNED:
        return Number(_wrapped(_UNSIGNED[name](_unsigned(x, bits), _unsigned(y, bits)), bits), guessed)
    if name == "mulhiui":
        return Number(_high_half(_unsigned(x, bits), _unsigned(y, bits), bits), guessed)
    return Number(_wrapped(_SIGNED[name](x, y), bits), guessed)


def _high_half(a: Value, b: Value, bits: int) -> Value:
    """The upper bits of a product. 32-bit factors are split, because the product does not fit into 64."""
    if not isinstance(a, torch.Tensor) and not isinstance(b, torch.Tensor):
        return _signed(int(a) * int(b) >> bits, bits)
    if bits > 32:
        return torch.zeros_like(tensor_of(a) + tensor_of(b))
    low = (tensor_of(a) * (tensor_of(b) & 0xFFFF)) >> 16
    return _wrapped((tensor_of(a) * (tensor_of(b) >> 16) + low) >> (bits - 16), bits)


def float_op(name: str, a: Number, b: Number) -> Number | None:
    """On known floating-point numbers, which come from integers and constants; ``None``: not worth it."""
    if name == "divf":
        y = b.value
        if isinstance(y, torch.Tensor) or y == 0:
            return None
        return Number(a.value / y, a.guessed or b.guessed)
    if name not in _FLOATS:
        return None
    return Number(_FLOATS[name](a.value, b.value), a.guessed or b.guessed)


def compare(predicate: str, a: Number, b: Number, bits: int) -> Number:
    """``slt``, ``ult``, ``olt``, ``eq``...: of the guessed, everything but equality holds."""
    kind = predicate[-2:]
    if a.guessed or b.guessed or kind not in _COMPARISONS:
        return Number(int(kind != "eq"), True)
    x, y = a.value, b.value
    if predicate in ("ult", "ule", "ugt", "uge") and not isinstance(x, float):
        x, y = _unsigned(x, bits), _unsigned(y, bits)
    result = _COMPARISONS[kind](x, y)
    return Number(result.long() if isinstance(result, torch.Tensor) else int(result))


def choose(condition: Number, a: Number, b: Number) -> Number:
    """``arith.select``."""
    guessed = condition.guessed or a.guessed or b.guessed
    if not isinstance(condition.value, torch.Tensor):
        return Number((a if condition.value else b).value, guessed)
    where = torch.where(condition.value.bool(), tensor_of(a.value), tensor_of(b.value))
    return Number(where, guessed)


def convert(name: str, a: Number, source: Type, target: Type) -> Number | None:
    """Widen, narrow, reinterpret, or go between integers and floating point."""
    value = a.value
    if name in ("extui", "index_castui"):
        return Number(_unsigned(value, source.bits), a.guessed)
    if name == "extsi" and source.bits == 1:
        return Number(-value, a.guessed)
    if name in ("extsi", "index_cast", "trunci", "bitcast"):
        same = source.floating == target.floating
        return Number(_wrapped(value, target.bits), a.guessed) if same and not target.floating else None
    if name in ("sitofp", "uitofp"):
        value = _unsigned(value, source.bits) if name == "uitofp" else value
        return Number(value.double() if isinstance(value, torch.Tensor) else float(value), a.guessed)
    if name in ("fptosi", "fptoui"):
        if isinstance(value, torch.Tensor):
            return Number(_wrapped(value.nan_to_num(0, 0, 0).long(), target.bits), a.guessed)
        return Number(_wrapped(int(value), target.bits) if math.isfinite(value) else 0, a.guessed)
    return Number(value, a.guessed) if name in ("extf", "truncf", "fp_to_fp") else None


def whole(name: str, a: Number) -> Number | None:
    """``math.floor`` and ``math.ceil`` of a known number."""
    value = a.value
    if isinstance(value, torch.Tensor):
        return Number(torch.floor(value) if name == "floor" else torch.ceil(value), a.guessed)
    if not math.isfinite(value):
        return None
    return Number(float(math.floor(value) if name == "floor" else math.ceil(value)), a.guessed)
