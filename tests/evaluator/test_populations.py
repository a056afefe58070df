"""Small elements beside large ones: what cancels is forgiven, what is only small is not."""

from __future__ import annotations

import pytest
import torch

from egg.core.policy import Precision
from egg.evaluator.compare.bands import COARSE_EACH, FEWEST, FINE_EACH, Band, places, rms_by_band
from egg.evaluator.compare.compare import Moved, compare
from egg.evaluator.compare.populations import CHANCE, aside, explained, worst

U = 2.0**-24
MATCH = Precision.MATCH


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _worst(candidate: torch.Tensor, reference: torch.Tensor, exact: torch.Tensor) -> Band:
    half = reference.dtype is torch.bfloat16
    three = [t.double().reshape(-1) for t in (candidate, reference, exact)]
    return worst(three, 2.0**-8 if half else U, {}, COARSE_EACH if half else FINE_EACH)


def _scores(dtype: torch.dtype, hidden: float = -1e9) -> tuple[torch.Tensor, ...]:
    """In another order of summation, by the reference, exactly, and of operands that were rounded again."""
    q, k = (torch.randn(64, 64, generator=_generator()).to(dtype) for _ in range(2))
    apart = torch.rand(64, 64, generator=_generator()) < 0.5
    coarse = torch.float8_e4m3fn if dtype is torch.bfloat16 else torch.bfloat16
    parts = zip(q.float().chunk(4, 1), k.float().chunk(4, 1), strict=True)
    other = torch.stack([a @ b.T for a, b in parts]).sum(0).to(dtype)
    rough = (q.to(coarse).float() @ k.to(coarse).float().T).to(dtype)
    answers = (other, (q.float() @ k.float().T).to(dtype), q.double() @ k.double().T, rough)
    return tuple(t.masked_fill(apart, hidden) for t in answers)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_beside_a_mask_are_held_to_their_own_size(dtype) -> None:
    other, reference, exact, rough = _scores(dtype)
    assert compare(other, reference, exact, MATCH, banded=True).passed
    assert _worst(other, reference, exact).ratio < 0.5
    error = compare(rough, reference, exact, MATCH, banded=True)
    assert not error.passed
    assert max(error.max_ratio, error.rms_ratio, error.lost_ratio) <= 1.0
    assert error.band.size < 1e2


def test_fewer_small_elements_than_a_band_needs_are_seen() -> None:
    exact = 1.0 + torch.rand(4096, generator=_generator(), dtype=torch.float64)
    exact[: FEWEST - 1] *= 1e-9
    reference = exact.float()
    assert _worst(reference, reference, exact).ratio == 0.0
    wrong = reference.clone()
    wrong[: FEWEST - 1] = 0.0
    assert _worst(wrong, reference, exact).ratio > 1e3


def test_small_elements_that_come_of_large_ones_are_not_looked_at() -> None:
    exact = torch.randn(1 << 16, generator=_generator(), dtype=torch.float64)
    noise = 100.0 * U * torch.randn(1 << 16, generator=_generator(), dtype=torch.float64)
    assert _worst(exact + noise, exact.float(), exact).ratio < 1.0
    products = exact * exact.roll(1) * exact.roll(2)
    assert _worst(products + noise, products.float(), products).ratio < 1.0


def test_one_sum_that_cancels_may_be_written_to_a_whole_row() -> None:
    exact = torch.randn(64, 1, generator=_generator(), dtype=torch.float64)
    exact[0] = 1e-7
    rows = exact.expand(64, 64).contiguous()
    candidate = rows.clone()
    candidate[0] += 1e-7
    assert _worst(candidate, rows.float(), rows).ratio < 1.0


def test_what_functions_round_on_the_way_is_allowed() -> None:
    x = 40.0 * torch.randn(64, 128, generator=_generator())
    exact = torch.nn.functional.softplus(x.double())
    reference = torch.nn.functional.softplus(x)
    written = torch.where(x > 20.0, x, torch.log(1.0 + torch.exp(x)))
    assert not compare(written, reference, exact, MATCH, banded=True).passed
    functions = rms_by_band(torch.full_like(exact, 4.0 * U), exact)
    assert compare(written, reference, exact, MATCH, Moved(0.0, 0.0, functions=functions), banded=True).passed


def test_how_many_small_elements_cancelling_explains() -> None:
    exact = torch.randn(1 << 16, generator=_generator(), dtype=torch.float64)
    counts = torch.bincount(places(exact), minlength=128).tolist()
    for band in range(50, 62):
        assert explained(counts, band, band) >= sum(counts[: band + 1])
    above = [0] * 128
    above[90] = 1 << 16
    assert explained(above, 75, 80) < 0.1
    assert explained(above, 75, 90) == 0.0


@pytest.mark.parametrize("expected", [1e-6, 1e-3, 0.1, 1.0, 10.0, 1000.0])
def test_chance_exceeds_what_is_set_aside_once_in_a_million(expected: float) -> None:
    poisson = torch.distributions.Poisson(torch.tensor(expected, dtype=torch.float64))
    count = aside(expected)
    within = poisson.log_prob(torch.arange(count + 1, dtype=torch.float64)).exp().sum()
    assert 1.0 - float(within) <= CHANCE
    assert aside(0.0) == 0
