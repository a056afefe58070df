"""Slices of a scale of their own, few elements, integers at a boundary: honest arithmetic passes, no more."""

from __future__ import annotations

import pytest
import torch

from egg.core.policy import Precision
from egg.evaluator.compare.compare import Moved, compare

MATCH = Precision.MATCH
Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def fading(dtype: torch.dtype, *shape: int) -> Three:
    """A product whose rows fade, in another order of summation, by the reference, and exactly."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(*shape, generator=generator).to(dtype)
    w = torch.randn(shape[-1], 64, generator=generator).to(dtype)
    decay = torch.exp(-0.1 * torch.arange(shape[-2]))[:, None]
    halves = zip(x.float().chunk(2, -1), w.float().chunk(2, 0), strict=True)
    other = sum(a @ b for a, b in halves) * decay
    exact = (x.double() @ w.double()) * decay.double()
    return other.to(dtype), ((x @ w).float() * decay).to(dtype), exact


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(128, 64), (4, 128, 64), (32, 128, 64)])
def test_rows_that_fade_pass_in_another_order_and_not_without_a_part(dtype, shape) -> None:
    other, reference, exact = fading(dtype, *shape)
    assert compare(other, reference, exact, MATCH, banded=True).passed
    wrong = other.clone()
    wrong[..., 86:111, :] *= 0.9999 if dtype is torch.float32 else 0.9
    error = compare(wrong, reference, exact, MATCH, banded=True)
    assert error.band.ratio > 2.0
    assert max(error.max_ratio, error.rms_ratio, error.lost_ratio) <= 1.0


def test_a_small_row_of_one_batch_is_seen() -> None:
    generator = torch.Generator().manual_seed(0)
    exact = torch.randn(32, 32, 64, generator=generator, dtype=torch.float64)
    exact[3, 5] *= 1e-3
    reference = exact.bfloat16()
    wrong = reference.clone()
    wrong[3, 5] = 0.0
    assert not compare(wrong, reference, exact, MATCH, banded=True).passed
    assert compare(wrong, reference, exact, MATCH).passed


def test_a_row_with_a_single_small_element_has_no_scale_and_rows_of_many_do() -> None:
    """What a ReLU leaves: the reference may have lost it to zero, another order of summation may not."""
    generator = torch.Generator().manual_seed(0)
    exact = torch.randn(256, 256, generator=generator, dtype=torch.float64).clamp_min(0)
    exact[3] = 0.0
    exact[3, 7] = 8e-8
    reference = exact.half()
    reference[3] = 0.0
    candidate = exact.half()
    candidate[3, 7] = 4e-6
    assert compare(candidate, reference, exact, MATCH, banded=True).passed
    exact[3] = 8e-5
    reference[3] = exact[3].half()
    candidate[3] = 4e-4
    assert not compare(candidate, reference, exact, MATCH, banded=True).passed


def test_slices_that_cancel_are_measured_by_the_reference_and_by_conditioning() -> None:
    generator = torch.Generator().manual_seed(0)
    exact = torch.randn(64, 64, generator=generator, dtype=torch.float64)
    exact[:8] *= 1e-3
    noise = [1e-3 * 2.0**-8 * torch.randn(64, 64, generator=generator) * 64 for _ in range(2)]
    noise[0][8:], noise[1][8:] = 0.0, 0.0
    reference, candidate = ((exact + n).bfloat16() for n in noise)
    assert compare(candidate, reference, exact, MATCH, banded=True).passed
    assert not compare(candidate, exact.bfloat16(), exact, MATCH, banded=True).passed


def test_each_of_few_elements_is_held_to_its_own_rounding() -> None:
    exact = torch.tensor([4096.0, 2e-3], dtype=torch.float64)
    reference = exact.float()
    near, far = (reference * torch.tensor([1.0, factor]) for factor in (1.0 + 1e-5, 1.001))
    assert compare(near, reference, exact, MATCH, banded=True).passed
    error = compare(far, reference, exact, MATCH, banded=True)
    assert not error.passed
    assert error.band.size == pytest.approx(2e-3)
    cancels = Moved(0.0, 0.0, each=(0.0, 1e-8))
    assert compare(far, reference, exact, MATCH, cancels, banded=True).passed


def test_an_integer_may_be_the_next_one_where_the_exact_run_crosses_the_boundary() -> None:
    reference = torch.arange(-50, 50, dtype=torch.int8).repeat(40)
    crossing = reference.clone()
    crossing[7] += 1
    assert not compare(crossing, reference, reference, MATCH).passed
    assert compare(crossing, reference, reference, MATCH, crossed=[reference, crossing]).passed
    further = crossing.clone()
    further[8] += 1
    assert not compare(further, reference, reference, MATCH, crossed=[crossing]).passed
    everywhere = reference + 1
    assert not compare(everywhere, reference, reference, MATCH, crossed=[everywhere]).passed
    two_steps = reference.clone()
    two_steps[7] += 2
    assert not compare(two_steps, reference, reference, MATCH, crossed=[two_steps]).passed
