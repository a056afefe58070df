"""Operations that round or leave bits out, seen by their values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from egg.evaluator.operators.lossy import Lossy, loses
from egg.evaluator.operators.ops import Recorder

Function = Callable[[torch.Tensor], object]
HALVES = torch.arange(64) / 2.0


def finds(function: Function, x: torch.Tensor) -> bool:
    lossy = Lossy()
    with Recorder(flow=lossy):
        function(x)
    return lossy.found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.div(x, 0.25, rounding_mode="trunc"),
        lambda x: torch.div(x, 0.25, rounding_mode="floor"),
        lambda x: torch.div(x, x.abs().mean(1, keepdim=True), rounding_mode="trunc"),
        lambda x: torch.bucketize(x.float(), torch.linspace(-2, 2, 9)),
        lambda x: torch.fake_quantize_per_tensor_affine(4 * x.float(), 1.0, 0, -128, 127),
    ],
)
def test_roundings(function: Function, dtype: torch.dtype) -> None:
    assert finds(function, (3 * torch.randn(16, 64)).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x / 0.25,
        lambda x: 1e9 * x,
        lambda x: torch.sigmoid(1e6 * x),
        lambda x: torch.softmax(1e6 * x, 1),
        lambda x: torch.clamp(1e6 * x, -2.0, 2.0),
        lambda x: torch.where(x > 0, torch.arange(64.0), -torch.arange(64.0)),
        lambda x: x - x,
    ],
)
def test_what_is_no_rounding(function: Function, dtype: torch.dtype) -> None:
    assert not finds(function, (3 * torch.randn(16, 64)).to(dtype))


def test_low_bits() -> None:
    x = torch.randint(0, 1 << 20, (16, 64))
    assert finds(lambda x: x - torch.mul(x // 256, 256), x)
    assert not finds(lambda x: x + 256, x)
    assert not finds(lambda x: x * 2, x)


@pytest.mark.parametrize(
    ("source", "dtype", "expected"),
    [
        (HALVES, torch.int32, True),
        (HALVES.round(), torch.int32, False),
        (HALVES.round() * 1e30, torch.int64, False),
        (HALVES, torch.bool, True),
        ((HALVES > 3).float(), torch.bool, False),
        (torch.arange(300), torch.uint8, True),
        (torch.arange(200), torch.uint8, False),
    ],
)
def test_casts_that_drop_something(source: torch.Tensor, dtype: torch.dtype, expected: bool) -> None:
    assert loses(source, source.to(dtype)) is expected
