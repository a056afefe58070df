"""Convolutions whose sums are short: weights that a program loads once for some tiles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from egg.expert.parts import Unfit
from tests.expert.convolutions import Case, tf32_error, within
from tests.expert.test_convolution import EXACT, FORMS, SLACK

TILES = {"mode": "shallow", "BLOCK_P": 32, "BLOCK_O": 16, "TILES": 3}
SHORT = (
    *(FORMS[at] for at in (0, 1, 2, 3, 4, 6, 10, 11, 12, 13, 21)),
    Case("a_power_of_two", 2, 8, 7, (6, 5), (4, 4), padding=1),
    Case("wide_outputs", 1, 5, 40, (6, 7), (3, 3), tail=("relu",)),
    Case("pooled", 2, 5, 7, (10, 12), (3, 3), tail=("relu", "max_pool")),
    Case("averaged", 3, 5, 7, (9, 11), (3, 3), tail=("relu", "space_mean")),
    Case("over_channels", 2, 5, 7, (9, 11), (3, 3), padding=1, tail=("relu", "softmax")),
)


@pytest.mark.parametrize("case", SHORT, ids=str)
def test_exact(case: Case) -> None:
    within(EXACT, replace(case, settings={**TILES, "grade": "fp32"}))


@pytest.mark.parametrize("case", [SHORT[1], SHORT[4], SHORT[-2]], ids=str)
def test_one_product(case: Case) -> None:
    within(SLACK * tf32_error(case), replace(case, settings={**TILES, "grade": "tf32"}))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types(dtype: str) -> None:
    bound = {"float16": 1e-3, "bfloat16": 6e-3}[dtype]
    within(bound, replace(FORMS[1], dtype=dtype, settings=TILES))


@pytest.mark.parametrize("case", [SHORT[1], SHORT[-3], SHORT[-2]], ids=str)
def test_right_at_other_sizes(case: Case) -> None:
    """With other channels the steps are others too."""
    case = replace(case, settings={**TILES, "grade": "fp32"})
    within(EXACT, case, case.larger())


@pytest.mark.parametrize("case", [FORMS[5], FORMS[9], FORMS[16]], ids=str)
def test_long_sums_groups_and_phases_are_refused(case: Case) -> None:
    with pytest.raises(Unfit, match="short sums"):
        replace(case, settings=TILES).part()


def test_chosen_where_a_program_has_several_tiles() -> None:
    """As in an image network's first layers in fp32; not for a few positions, and not for many channels."""
    image = Case("image", 16, 8, 64, (256, 256), (3, 3))
    assert "for tile in range(first" in image.source()
    assert "for tile in range(first" not in replace(image, batch=1, space=(32, 32)).source()
    assert "for tile in range(first" not in replace(image, inputs=64).source()
