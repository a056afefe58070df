"""Errors by magnitude: honest arithmetic stays inside, coarse parts of an output do not."""

from __future__ import annotations

import pytest
import torch

from egg.core.policy import Precision
from egg.evaluator.compare.bands import FEWEST, FINE_EACH, of_few, rms_by_band, worst
from egg.evaluator.compare.compare import Moved, compare
from egg.evaluator.compare.scales import rms_by_pool

U = 2.0**-24


def _softmax() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = 8.0 * torch.randn(64, 256, generator=torch.Generator().manual_seed(0))
    return x, torch.softmax(x, -1), torch.softmax(x.double(), -1)


def test_an_exponential_by_powers_of_two_is_inside() -> None:
    x, reference, exact = _softmax()
    y = x * 1.4426950408889634
    e = torch.exp2(y - y.amax(-1, keepdim=True))
    assert worst((e / e.sum(-1, keepdim=True), reference, exact), U, {}).ratio < 0.25


@pytest.mark.parametrize("parts", [8, 64])
def test_a_sum_in_another_order_is_inside(parts: int) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(64, 512, generator=generator), torch.randn(512, 64, generator=generator)
    pieces = zip(a.chunk(parts, 1), b.chunk(parts, 0), strict=True)
    assert worst((sum(p @ q for p, q in pieces), a @ b, a.double() @ b.double()), U, {}).ratio < 0.25  # pyright: ignore


def test_small_elements_that_are_off_are_seen() -> None:
    _, reference, exact = _softmax()
    off = torch.where(reference < 1e-6, reference * 1.001, reference)
    found = worst((off, reference, exact), U, {})
    assert found.ratio > 10
    assert found.size < 1e-6
    error = compare(off, reference, exact, Precision.MATCH, banded=True)
    assert not error.passed
    assert compare(off, reference, exact, Precision.MATCH).passed


def test_conditioning_widens_a_band() -> None:
    _, reference, exact = _softmax()
    off = torch.where(reference < 1e-6, reference * 1.001, reference)
    pools = rms_by_pool([exact, exact * 1e-3], lambda _, moves: moves)
    moved = Moved(0.0, 0.0, 0.0, rms_by_band(exact * 1e-3, exact), pools)
    assert compare(off, reference, exact, Precision.MATCH, moved, banded=True).passed


def test_of_few_elements_nothing_is_concluded() -> None:
    exact = torch.ones(64, dtype=torch.float64)
    exact[: FEWEST - 1] = 1e-3
    candidate = exact.clone()
    candidate[: FEWEST - 1] *= 1.5
    assert worst((candidate, exact, exact), U, {}).ratio == 0.0
    exact[FEWEST - 1], candidate[FEWEST - 1] = 1e-3, 1.5e-3
    assert worst((candidate, exact, exact), U, {}).ratio > 1.0


def test_what_is_zero_or_flushed_is_left_alone() -> None:
    exact = torch.tensor([0.0, 1e-38, 1.0] * 16, dtype=torch.float64)
    assert worst((torch.where(exact < 1.0, 0.0, exact), exact, exact), U, {}).ratio == 0.0


def test_an_exact_answer_of_few_elements_that_begins_with_zero_is_within_its_limits():
    exact = torch.tensor([0.0, 2.0, -3.0], dtype=torch.float64)
    found = of_few((exact, exact, exact), 2**-24, (), FINE_EACH)
    assert found.ratio == 0.0
    assert found.size == 2.0
