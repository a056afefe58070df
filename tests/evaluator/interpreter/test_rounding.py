"""Rounding to narrow types, against PyTorch's own; dots and special functions beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from egg.evaluator.interpreter import dot, narrow, special

FLOAT32 = st.floats(width=32, allow_nan=True, allow_infinity=True)
BITS = st.integers(0, 2**32 - 1)


def bf16_bits_by_torch(values: np.ndarray) -> np.ndarray:
    return torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)


@given(st.lists(FLOAT32, min_size=1, max_size=64))
def test_bf16_rounds_as_torch_does(values: list[float]) -> None:
    array = np.array(values, dtype=np.float32)
    ours, theirs = narrow.f32_to_bf16(array), bf16_bits_by_torch(array)
    nan = np.isnan(array)
    assert np.array_equal(ours[~nan], theirs[~nan])
    assert np.isnan(narrow.bf16_to_f32(ours[nan])).all()


def test_bf16_ties_and_carries() -> None:
    """Every tie between two bf16 values, and the neighbours of each tie."""
    halves = (np.arange(0, 0x7F80, dtype=np.int64) << 16) | 0x8000
    for step in (-1, 0, 1):
        array = (halves + step).astype(np.uint32).view(np.float32)
        assert np.array_equal(narrow.f32_to_bf16(array), bf16_bits_by_torch(array))


@given(st.lists(BITS, min_size=1, max_size=64))
def test_tf32_keeps_ten_bits_toward_zero(patterns: list[int]) -> None:
    array = np.array(patterns, dtype=np.uint32).view(np.float32)
    got = narrow.truncate_to_tf32(array)
    finite = np.isfinite(array)
    assert (got.view(np.uint32)[finite] & 0x1FFF == 0).all()
    assert (np.abs(got[finite]) <= np.abs(array[finite])).all()
    normal = finite & (np.abs(array) >= np.finfo(np.float32).tiny)
    relative = np.abs(got[normal].astype(np.float64) / array[normal].astype(np.float64) - 1)
    assert (relative < 2.0**-10).all()
    assert np.array_equal(np.isnan(got), np.isnan(array))
    assert np.array_equal(narrow.truncate_to_tf32(got), got, equal_nan=True)


@pytest.mark.parametrize(("name", "dtype"), [("fp8e4nv", torch.float8_e4m3fn), ("fp8e5", torch.float8_e5m2)])
def test_fp8_matches_torch(name: str, dtype: torch.dtype) -> None:
    codes = np.arange(256, dtype=np.uint8)
    values = torch.from_numpy(codes).view(dtype).float().numpy()
    assert np.array_equal(narrow.f8_to_f32(codes, name), values, equal_nan=True)
    finite = np.sort(values[np.isfinite(values)])
    samples = np.concatenate([finite, (finite[1:] + finite[:-1]) / 2, np.linspace(-2, 2, 4001)])
    samples = samples.astype(np.float32)
    theirs = torch.from_numpy(samples).to(dtype).view(torch.uint8).numpy()
    assert np.array_equal(narrow.f32_to_f8(samples, name), theirs)
    assert narrow.f8_to_f32(narrow.f32_to_f8(np.float32([1e9, -1e9]), name), name).tolist() == [
        finite[-1],
        finite[0],
    ]


def test_dot_precisions_are_ordered() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 64, 64)).astype(np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    zero = np.zeros((64, 64), dtype=np.float32)
    errors = {
        p: np.abs(dot.product(a, b, zero, p) - exact).max() for p in ("IEEE", "TF32x3", "BF16x3", "TF32")
    }
    assert errors["IEEE"] == errors["TF32x3"] < errors["BF16x3"] < errors["TF32"]
    assert 1e-3 < errors["TF32"] < 1e-1
    by_hand = narrow.truncate_to_tf32(a) @ narrow.truncate_to_tf32(b)
    assert np.array_equal(dot.product(a, b, zero, "TF32"), by_hand)


def test_int8_dot_is_exact() -> None:
    a, b = np.random.default_rng(1).integers(-128, 128, (2, 32, 32), dtype=np.int8)
    acc = np.full((32, 32), 7, dtype=np.int32)
    assert np.array_equal(dot.product(a, b, acc, "IEEE"), a.astype(np.int32) @ b.astype(np.int32) + 7)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (special.erfinv, torch.special.erfinv),
        (special.normcdf, torch.special.ndtr),
        (special.erfcx, torch.special.erfcx),
        (special.lgamma, torch.lgamma),
    ],
)
def test_special_functions_match_torch(ours: Callable[[float], float], theirs: Callable[..., Any]) -> None:
    x = torch.cat([torch.linspace(-0.999, 0.999, 333), torch.tensor([1e-12, 1e-5, 1 - 1e-8])]).double()
    got = special.elementwise(ours)(x.numpy())
    assert np.allclose(got, theirs(x).numpy(), rtol=1e-8, atol=0, equal_nan=True)
