"""Convolutions of few input channels in one tile, and how exact a convolution is made at first."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from egg.expert.parts import Unfit
from egg.expert.patterns.convolution.form import Form
from egg.expert.patterns.convolution.grade import reference_grade
from egg.expert.patterns.convolution.triton.window import gathered, windowed
from tests.expert.convolutions import Case, tf32_error, within

SMALL = {"BLOCK_P": 32, "BLOCK_O": 16, "mode": "window"}
EXACT = 3e-7
CASES = (
    Case("taps", 2, 3, 7, (9, 11), (3, 3), 2, 1, tail=("relu", "scale")),
    Case("apart", 2, 3, 20, (11, 12), (3, 2), 1, 2, 3),
    Case(
        "turned", 1, 3, 5, (3, 4, 5), (3, 3, 3), 2, 1, transposed=True, output_padding=1, tail=("residual",)
    ),
    Case("turned_dilated", 2, 5, 7, (9,), (5,), 3, 2, 2, transposed=True, output_padding=1),
    Case("turned_sparse", 2, 3, 5, (5, 4), (2, 2), 3, 0, transposed=True, prologue=True),
    Case("turned_exponents", 2, 6, 7, (5, 6), (3, 3), 2, 1, transposed=True, tail=("logsumexp",)),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_right_at_other_sizes(case: Case) -> None:
    case = replace(case, settings={**SMALL, "grade": "fp32"})
    within(EXACT, case, case.larger())


@pytest.mark.parametrize("mode", ["window", "packed", "direct"])
@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[4]], ids=str)
def test_channels_that_are_last_lie_along_the_lanes(case: Case, mode: str) -> None:
    """The tile is stored as it is; with a channel or two to a position, lanes follow positions as ever."""
    settings = {"BLOCK_P": 32, "BLOCK_O": 16, "mode": mode, "grade": "fp32"}
    case = replace(case, outputs=20, channels_last=True, tail=(), settings=settings)
    assert "tl.store" in case.source()
    assert "(BLOCK_O * BLOCK_P" not in case.source()
    found, wanted = case.run()
    assert found.stride(1) == 1
    torch.testing.assert_close(found.double(), wanted, rtol=1e-6, atol=1e-6)
    few = replace(case, outputs=3, transposed=True, stride=2, kernel=(2,) * case.rank)
    assert "(BLOCK_O * BLOCK_P" in few.source()
    within(EXACT, few)


def test_coarser_grades() -> None:
    case = replace(CASES[2], settings={**SMALL, "grade": "tf32"})
    within(1.05 * tf32_error(case), case)
    half = replace(CASES[0], dtype="float16", settings=SMALL)
    within(1e-3, half)


def test_all_phases_of_a_position_read_the_same_few_inputs() -> None:
    form = Form.of(*CASES[2].graph())
    assert gathered(form) == 3 * 8
    assert windowed(form)
    text = CASES[2].source()
    assert "for rd in range(2):" in text
    assert "tl.join(acc_0, acc_1)" in text


def test_too_many_inputs_are_refused() -> None:
    case = replace(CASES[0], inputs=64, settings=SMALL)
    assert not windowed(Form.of(*case.graph()))
    with pytest.raises(Unfit, match="576 inputs"):
        case.part()
    with pytest.raises(Unfit, match="one group"):
        replace(case, inputs=6, outputs=6, groups=3).part()


GRADES = (
    (Case("few", 2, 8, 64, (20, 20), (3, 3)), "fp32"),
    (Case("enough", 2, 16, 64, (20, 20), (3, 3)), "tf32"),
    (Case("few_in_space", 2, 3, 16, (9, 9, 9), (3, 3, 3)), "fp32"),
    (Case("enough_in_space", 2, 8, 16, (9, 9, 9), (3, 3, 3)), "tf32"),
    (Case("groups", 2, 240, 240, (9, 9), (1, 1), groups=3), "fp32"),
    (Case("turned", 2, 3, 16, (9, 9, 9), (3, 3, 3), 2, 1, transposed=True), "tf32"),
    (Case("turned_groups", 2, 32, 32, (9, 9, 9), (3, 5, 7), 2, 1, groups=4, transposed=True), "fp32"),
    (Case("turned_wide", 2, 32, 64, (9, 9, 9), (5, 5, 5), 2, 2, transposed=True), "fp32"),
    (Case("turned_wide_closely", 2, 32, 64, (9, 9, 9), (5, 5, 5), transposed=True), "tf32"),
)


@pytest.mark.parametrize(("case", "grade"), GRADES, ids=lambda item: str(item))
def test_as_exact_as_pytorch(case: Case, grade: str) -> None:
    assert reference_grade(Form.of(*case.graph())) == grade


@pytest.mark.parametrize(
    ("case", "exact"),
    [
        (Case("cheap", 128, 32, 64, (256, 256), (1, 1)), True),
        (Case("turned_few", 8, 3, 16, (9, 9, 9), (3, 3, 3), 2, 1, transposed=True), True),
        (Case("dear", 8, 64, 128, (128, 128), (3, 3)), False),
        (Case("dear_but_exact", 8, 8, 64, (128, 128), (3, 3)), True),
        (Case("as_asked", 8, 8, 64, (128, 128), (3, 3), settings={"grade": "tf32"}), False),
    ],
    ids=str,
)
def test_exact_where_the_reference_is_or_where_it_costs_nothing(case: Case, exact: bool) -> None:
    assert ("x_low" in case.source()) == exact
