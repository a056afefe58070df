"""Values of Triton's interpreter as arrays: widened, masked, and what undefined memory holds."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from egg.evaluator.interpreter import narrow
from egg.evaluator.interpreter.memory import Touched
from egg.evaluator.interpreter.session import PROPAGATE

native: Any = interpreter._interpreter  # type: ignore[attr-defined]


BF16_EXTREMES = (narrow.BF16_NAN, narrow.BF16_NAN, narrow.BF16_NAN, 0x7F7F, 0xFF7F)
KINDS, MAGNITUDE = 8, 32.0
"""What undefined lanes hold: extremes, else ordinary numbers of this magnitude, another in each lane."""
TensorHandle: Any = interpreter.TensorHandle


def is_bf16(handle: Any) -> bool:
    return handle.data.dtype == np.uint16 and handle.dtype.scalar == tl.bfloat16


def widened(handle: Any) -> Any:
    """The handle itself, or its float32 equal where it holds bf16 bits."""
    return TensorHandle(narrow.bf16_to_f32(handle.data), tl.float32) if is_bf16(handle) else handle


def larger() -> np.ufunc:
    """The maximum as it is to treat a NaN now."""
    return np.maximum if PROPAGATE.get() else np.fmax


def smaller() -> np.ufunc:
    return np.minimum if PROPAGATE.get() else np.fmin


class AsmResult:
    """What the semantic layer expects of an inline-asm call: results by number."""

    def __init__(self, handles: list[Any]) -> None:
        self.handles = handles

    def get_result(self, index: int) -> Any:
        return self.handles[index]


def garbage(element: Any, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """What lanes hold whose load was masked off and given no value: anything, another thing every time.

    The language leaves it undefined. Not always NaN: a maximum would pass over it. Nor one number for all
    lanes: what is added in one and taken off in another would cancel. Nor always one that stands out: a
    comparison would drop it.
    """
    drawn = np.random.default_rng(secrets.randbits(64))
    kind = int(drawn.integers(KINDS))
    if element == tl.bfloat16:
        if kind < len(BF16_EXTREMES):
            return np.full(shape, BF16_EXTREMES[kind], dtype=dtype)
        values = drawn.normal(scale=MAGNITUDE, size=shape).astype(np.float32)
        return (values.view(np.uint32) >> 16).astype(dtype)
    if dtype.kind == "f":
        most = np.finfo(dtype).max
        if kind < len(BF16_EXTREMES):
            return np.full(shape, (np.nan, np.nan, np.nan, most, -most)[kind], dtype=dtype)
        return drawn.normal(scale=MAGNITUDE, size=shape).astype(dtype)
    if dtype.kind == "b":
        return drawn.integers(0, 2, size=shape).astype(bool)
    return drawn.integers(0, 256, size=(*shape, dtype.itemsize), dtype=np.uint8).view(dtype)[..., 0]


def mask_data(mask: Any) -> np.ndarray | None:
    """Masks come as handles, or (from descriptors, in some releases) as bare arrays.

    A block joined with a truth of Python's, such as a condition on the counter of a loop, comes
    as integers of 0 and 1.
    """
    if mask is None:
        return None
    data = mask if isinstance(mask, np.ndarray) else mask.data
    return data.astype(bool, copy=False)


def active_values(values: np.ndarray, part: Touched, shape: tuple[int, ...]) -> np.ndarray:
    values = np.broadcast_to(values, shape)
    return values if part.lanes is None else values[part.lanes]


def peek(part: Touched, dtype: np.dtype) -> np.ndarray:
    """What memory holds now at the addresses an access is about to touch."""
    flat = np.ascontiguousarray(part.addresses).ravel() - part.region.delta
    return native.load(flat, np.ones(flat.shape, dtype=bool), np.zeros(flat.shape, dtype=dtype), dtype)
