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


def garbage(element: Any, dtype: np.dtype) -> Any:
    """What a lane holds whose load was masked off and given no value: anything, another thing every time.

    The language leaves it undefined. Not always NaN: a maximum would pass over it.
    """
    bits = secrets.randbits(8 * dtype.itemsize)
    if dtype.kind == "b":
        return bool(bits & 1)
    if dtype.kind == "f":
        most = np.finfo(dtype).max
        return (np.nan, np.nan, most, -most)[bits % 4]
    if element == tl.bfloat16:
        return (narrow.BF16_NAN, narrow.BF16_NAN, 0x7F7F, 0xFF7F)[bits % 4]
    return np.array(bits, dtype=f"u{dtype.itemsize}").view(dtype)[()]


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
