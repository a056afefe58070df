"""Floats narrower than numpy's own: bfloat16, the fp8 formats and TF32, by bit patterns.

Triton's interpreter keeps bf16 in ``uint16`` and fp8 in ``uint8``. Everything here maps
between those bits and float32, with the rounding the hardware uses: to nearest, ties to
even, for conversions; truncation for the operands a tensor core reads as TF32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

BF16_NAN = np.uint16(0x7FC0)
_HALF_ULP_BELOW = np.uint32(0x7FFF)
_TF32_MASK = np.uint32(0xFFFFE000)


def bf16_to_f32(bits: np.ndarray) -> np.ndarray:
    """Widening is exact: a bf16 is the upper half of a float32."""
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(values: np.ndarray) -> np.ndarray:
    """Round to nearest even by adding just under half an ulp, plus the last kept bit for ties.

    The carry may run into the exponent, which is right: the next binade (or infinity) is
    exactly where such a value belongs. Only NaN needs care, as the carry could make it Inf.
    """
    values = np.asarray(values, dtype=np.float32)
    bits = values.view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = ((bits + _HALF_ULP_BELOW + odd) >> np.uint32(16)).astype(np.uint16)
    nan = np.isnan(values)
    return np.where(nan, BF16_NAN, rounded) if nan.any() else rounded


def f32_to_bf16_toward_zero(values: np.ndarray) -> np.ndarray:
    """``fp_downcast_rounding="rtz"``: drop the lower half."""
    values = np.asarray(values, dtype=np.float32)
    bits = (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(values), BF16_NAN, bits)


def truncate_to_tf32(values: np.ndarray) -> np.ndarray:
    """Keep 10 mantissa bits: tensor cores ignore the lower 13 bits of a float32 operand."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    truncated = (bits & _TF32_MASK).view(np.float32)
    nan = np.isnan(values)
    return np.where(nan, np.float32(np.nan), truncated) if nan.any() else truncated


@dataclass(frozen=True)
class Float8:
    """An 8-bit float; conversions saturate, as the GPU's ``cvt.satfinite`` does."""

    mantissa_bits: int
    bias: int
    largest_code: int
    infinity_code: int | None


FLOAT8: dict[str, Float8] = {
    "fp8e4nv": Float8(mantissa_bits=3, bias=7, largest_code=0x7E, infinity_code=None),
    "fp8e5": Float8(mantissa_bits=2, bias=15, largest_code=0x7B, infinity_code=0x7C),
}


@cache
def _decoded(name: str) -> np.ndarray:
    """The value of each of the 256 codes."""
    form = FLOAT8[name]
    codes = np.arange(128)
    exponent = codes >> form.mantissa_bits
    fraction = (codes & ((1 << form.mantissa_bits) - 1)) / (1 << form.mantissa_bits)
    magnitude = np.where(exponent == 0, fraction, 1 + fraction) * 2.0 ** (np.maximum(exponent, 1) - form.bias)
    magnitude[form.largest_code + 1 :] = np.nan
    if form.infinity_code is not None:
        magnitude[form.infinity_code] = np.inf
    return np.concatenate([magnitude, -magnitude]).astype(np.float32)


def f8_to_f32(bits: np.ndarray, name: str) -> np.ndarray:
    return _decoded(name)[np.asarray(bits).view(np.uint8)]


def f32_to_f8(values: np.ndarray, name: str) -> np.ndarray:
    """Find the neighbouring codes between which a value lies; positive codes grow with their values."""
    form = FLOAT8[name]
    values = np.asarray(values, dtype=np.float32)
    finite = _decoded(name)[: form.largest_code + 1].astype(np.float64)
    midpoints = (finite[1:] + finite[:-1]) / 2
    magnitude = np.abs(values.astype(np.float64))
    code = np.searchsorted(midpoints, magnitude, side="left")
    tie = (code < len(midpoints)) & (midpoints[np.minimum(code, len(midpoints) - 1)] == magnitude)
    code = (code + (tie & (code % 2 == 1))).astype(np.uint8)
    code = np.where(np.isnan(values), np.uint8(0x7F), code)
    return code | (np.signbit(values).astype(np.uint8) << np.uint8(7))
