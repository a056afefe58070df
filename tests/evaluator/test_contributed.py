"""Whether something but operators of PyTorch computed: what a kernel would do is done out of their sight."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import _disable_current_modes

from egg.evaluator.operators.contributed import LARGEST, MOST, Draw, aligned, alike, contributes
from egg.evaluator.operators.ops import Recorder

ROWS, FEATURES = 32, 64
Function = Callable[[torch.Tensor], torch.Tensor]
WEIGHT = torch.randn(FEATURES, FEATURES, generator=torch.Generator().manual_seed(0))
BIAS = WEIGHT[0]


def own(function: Function) -> Function:
    def unseen(x: torch.Tensor) -> torch.Tensor:
        with _disable_current_modes():
            return function(x)

    return unseen


def computes(function: Function, dtype: torch.dtype = torch.float32) -> bool:
    draws = []
    for _ in range(6):
        x, draw = torch.randn(ROWS, FEATURES).to(dtype), Draw(7)
        draw.begin([x])
        with Recorder(flow=draw):
            result = function(x)
        draw.end([result])
        draws.append(draw)
    found = alike(draws)
    return contributes(found if len(found) == len(draws) else aligned(draws))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: own(lambda h: h.flip(0) * 3 + 1)(x @ WEIGHT),
        lambda x: own(lambda h: h.t() * 1.7)(x).t() @ WEIGHT,
        lambda x: torch.log(own(torch.exp)(x)) @ WEIGHT,
        lambda x: x @ WEIGHT + 1e-6 * own(torch.exp)(x),
        lambda x: own(lambda h: h[..., 0] * 2)(torch.view_as_real((x @ WEIGHT).to(torch.complex64))),
        lambda x: torch.softmax(x, -1)[:, own(lambda _: torch.arange(FEATURES).flip(0))(x)],
    ],
)
def test_kernels_that_only_carry(function: Function) -> None:
    assert not computes(function)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: own(lambda h: F.gelu(h + BIAS))(x @ WEIGHT),
        lambda x: own(lambda h: F.relu(h + BIAS))(x @ WEIGHT),
        lambda x: own(lambda h: F.layer_norm(h, (FEATURES,)))(x) @ WEIGHT,
        lambda x: own(lambda h: h + x)(x @ WEIGHT),
        lambda x: own(lambda h: h @ WEIGHT)(x),
        lambda x: own(lambda h: h * 2)(x),
        lambda x: x[own(lambda h: h.argmax(1) % ROWS)(x)] @ WEIGHT,
    ],
)
def test_kernels_that_compute(function: Function) -> None:
    assert computes(function)


def beside(junk: Callable[[int], object]) -> Function:
    """A kernel that only carries, beside something that the answer does not need."""
    calls = itertools.count(1)

    def forward(x: torch.Tensor) -> torch.Tensor:
        junk(next(calls))
        return own(lambda h: h * 2)(x) @ WEIGHT

    return forward


@pytest.mark.parametrize(
    "junk",
    [
        lambda _: torch.zeros(LARGEST + 1),
        lambda _: torch.randn(LARGEST + 1) * 2,
        lambda _: [torch.zeros(LARGEST) for _ in range(2 * MOST // LARGEST)],
        lambda _: WEIGHT.to_sparse() * 2,
        lambda _: torch.zeros(1).expand(1 << 40)[:1] + WEIGHT[0].expand(1 << 20, FEATURES)[::4096, 0],
        lambda call: torch.zeros(call) + 1,
        lambda call: [WEIGHT + 1 for _ in range(call)],
    ],
)
def test_what_the_answer_does_not_need_ends_nothing(junk: Callable[[int], object]) -> None:
    assert not computes(beside(junk))


def test_calls_that_differ_and_compute() -> None:
    calls = itertools.count(1)

    def forward(x: torch.Tensor) -> torch.Tensor:
        more = torch.zeros(next(calls)) + 1
        return own(lambda h: F.layer_norm(h, (FEATURES,)))(x * more[0]) @ WEIGHT

    assert computes(forward)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rounding_to_sixteen_bits_is_no_work_and_a_norm_is(dtype: torch.dtype) -> None:
    weight = WEIGHT.to(dtype)
    assert not computes(lambda x: own(lambda h: h * 1.7)(x) @ weight, dtype)
    assert computes(lambda x: own(lambda h: F.layer_norm(h, (FEATURES,)))(x) @ weight, dtype)


def test_what_hands_back_its_operand_is_no_work() -> None:
    plain = torch.randn(8)
    with Recorder() as recorder:
        torch.resolve_neg(torch.resolve_conj(plain))
        assert not recorder.compute
        plain.neg()
    assert set(recorder.compute) == {"neg"}
