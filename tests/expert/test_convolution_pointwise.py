"""Convolutions of one tap whose positions are taken as they lie, and which of them are written so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from egg.expert.cost import Machine
from egg.expert.parts import Unfit
from egg.expert.patterns.convolution.cost import own_seconds
from egg.expert.patterns.convolution.form import Form
from egg.expert.patterns.convolution.grade import Grade
from egg.expert.patterns.convolution.tiles import rows_pay, rows_tile
from egg.hardware.gpus import resolve
from tests.expert.convolutions import Case, error, tf32_error, within

GPU = resolve("H200")
SMALL = {"BLOCK_P": 16, "BLOCK_O": 16, "TILES": 2, "mode": "pointwise"}
EXACT = 3e-7
MANY = Case("many", 2, 40, 24, (9, 11), (1, 1), tail=("relu", "scale"), bias=False)
FEW = Case("few", 2, 6, 20, (9, 11), (1, 1), tail=("residual",), settings={"BLOCK_P": 64})
LARGE = Case("large", 16, 64, 128, (512, 512), (1, 1))
CASES = (
    MANY,
    FEW,
    replace(MANY, name="line", space=(37,), kernel=(1,), prologue=True, bias=True),
    replace(FEW, name="few_and_computed", prologue=True),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_right_at_other_sizes(case: Case) -> None:
    case = replace(case, settings={**SMALL, "grade": "fp32", **case.settings})
    within(EXACT, case, case.larger())


def test_coarser_grades() -> None:
    case = replace(MANY, settings={**SMALL, "grade": "tf32"})
    within(1.05 * tf32_error(case), case)
    half = replace(MANY, dtype="float16", settings=SMALL)
    within(1e-3, half)


def test_every_position_has_its_own_scale() -> None:
    case = replace(MANY, tail=(), factors=(1e-15, 1e15), spike=1e6, settings={**SMALL, "grade": "fp32"})
    got, wanted = case.run()
    assert all(error(one, other) < EXACT for one, other in zip(got, wanted, strict=True))


def test_nothing_is_turned_around() -> None:
    text = replace(LARGE, settings={"grade": "tf32"}).source()
    assert "tl.trans" not in text
    assert "part = tl.dot(w_high, x_high)" in text
    few = replace(LARGE, inputs=6).source()
    assert "tl.dot" not in few
    assert "tl.static_range(" in few


def test_which_ones_are_written_so() -> None:
    def pays(case: Case) -> bool:
        form = Form.of(*case.graph())
        return rows_pay(form, Grade("tf32", form.x.dtype), GPU)

    assert pays(LARGE)
    assert pays(replace(LARGE, outputs=64, tail=("relu",)))
    assert not pays(replace(LARGE, inputs=512)), "more channels than one step takes"
    assert not pays(replace(LARGE, batch=4096, space=(7, 7))), "an odd number of positions"
    assert not pays(replace(LARGE, batch=1, space=(64, 64))), "too short"
    assert not pays(replace(LARGE, kernel=(3, 3), padding=1))
    assert not pays(replace(LARGE, tail=("softmax",)))
    with pytest.raises(Unfit, match="more than one tap"):
        replace(MANY, kernel=(2, 2), settings=SMALL).part()
    with pytest.raises(Unfit, match="more than one output channel"):
        replace(MANY, outputs=1, settings=SMALL).part()


def test_several_tiles_share_a_multiprocessor_and_the_estimate_knows() -> None:
    form = Form.of(*LARGE.graph())
    assert rows_tile(form, GPU).tiles > 1
    machine = Machine(GPU, GPU.bandwidth * 0.88, 1.0, 1.0)
    moved = float(form.x.bytes + form.result.bytes)
    graph, group = LARGE.graph()
    lying, gathered = (
        own_seconds(graph, group, replace(LARGE, settings={"mode": mode}).part(), "tf32", machine, moved)
        for mode in ("pointwise", "direct")
    )
    assert 1.0 <= lying * machine.memory / moved < 1.1
    assert gathered > 2 * lying


def test_the_estimate_knows_that_nothing_hides_the_end_of_a_lone_tile() -> None:
    """98 tiles of 116 channels at 14 x 14 took 12 us on an H200: four steps, and sums turned and stored."""
    machine = Machine.of(GPU)

    def seconds(batch: int) -> float:
        case = Case("lone", batch, 116, 116, (14, 14), (1, 1), settings={"mode": "direct"})
        graph, group = case.graph()
        form = Form.of(graph, group)
        moved = float(form.x.bytes + form.result.bytes)
        return own_seconds(graph, group, case.part(), None, machine, moved)

    assert 10e-6 < seconds(16) < 13e-6
    assert seconds(16) == seconds(8)
