"""Inputs of which few slices make up most."""

from __future__ import annotations

import pytest
import torch

from egg.evaluator.task.spread import LARGEST, LEAST, spread


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.complex64])
def test_few_rows_make_up_most_of_a_sum(dtype: torch.dtype) -> None:
    x = torch.ones(1 << 17, 4, dtype=dtype)
    (made,) = spread([x], 0, 7)
    sizes = made.abs().double()[:, 0].sort(descending=True).values
    assert sizes[0] > 0.2 * sizes.sum()
    assert float(sizes[0]) <= LARGEST
    assert float(sizes[-1]) >= 0.99 * LEAST
    assert made.dtype == dtype
    assert torch.equal(made[:, 0], made[:, 3])


def test_turns_go_from_the_longest_dimension_on() -> None:
    x = torch.ones(20, 3, 40)
    for turn, dim in enumerate((2, 0)):
        (made,) = spread([x], turn, 0)
        others = [d for d in range(3) if d != dim]
        assert bool((made.amax(others) == made.amin(others)).all())
        assert len(made.unique()) > 10
    assert spread([x], 2, 0)[0] is x


def test_the_last_turn_has_all_other_dimensions() -> None:
    """A mean over an image leaves no rows out, and no columns."""
    (made,) = spread([torch.ones(48, 64, 16, 20)], 2, 0)
    assert torch.equal(made[0, 0], made[47, 63])
    for lines in (made[0, 0].sum(0), made[0, 0].sum(1)):
        largest = lines.sort(descending=True).values
        assert float(largest[:4].sum()) > 0.6 * float(lines.sum())


def test_layouts_stay_and_what_is_no_float_or_repeats_is_left_alone() -> None:
    turned, index = torch.ones(64, 32).t(), torch.arange(64)
    expanded, eight = torch.ones(64, 1).expand(64, 32), torch.ones(64).to(torch.float8_e4m3fn)
    made = spread([turned, index, expanded, eight, 3], 0, 0)
    assert made[0].stride() == turned.stride()
    assert not torch.equal(made[0], turned)
    assert made[1] is index
    assert made[2] is expanded
    assert made[3] is eight


def test_halves_of_large_numbers_stay_far_from_the_largest() -> None:
    (made,) = spread([torch.full((64,), 1e3, dtype=torch.float16)], 0, 0)
    assert float(made.amax()) <= 1e3
