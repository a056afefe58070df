"""Figures of experiments: the gain of each stage, pass@k, the spread over samples."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.bench.experiments import pass_at, sampled, stage_gains
from egg.bench.figures import StepOutcome
from egg.bench.rows import NoKernel, Row, Spent, row_of
from egg.bench.scores import score
from egg.core.policy import Policy
from tests.bench.made import passed, task


def wrong(number: int) -> Row:
    return row_of(task(number), NoKernel("none"), Policy())


def stepped(row: Row, *steps: tuple[str, str, float | None]) -> Row:
    return replace(row, steps=tuple(StepOutcome(*step) for step in steps))


def test_the_gain_of_a_stage_is_that_of_its_promoted_steps():
    rows = [
        stepped(
            passed(task(1), {"eager": 3.0}),
            ("structure", "promoted", 2.0),
            ("structure", "promoted", 1.5),
            ("structure", "not_better", 0.5),
            ("tiling", "not_better", 0.9),
        ),
        stepped(passed(task(2), {"eager": 1.0}), ("structure", "failed", None), ("tiling", "promoted", 1.21)),
        stepped(wrong(3), ("structure", "promoted", 9.0)),
    ]
    structure, tiling = stage_gains(rows)
    assert (structure.stage, structure.tasks, structure.steps, structure.promoted) == ("structure", 2, 5, 3)
    assert structure.gain is not None
    assert structure.gain.value == pytest.approx(3.0)
    assert tiling.gain is not None
    assert tiling.gain.value == pytest.approx(math.sqrt(1.21))
    assert score(rows).stages == (structure, tiling)
    assert score(rows).to_json()["stages"][0]["promoted"] == 3
    assert stage_gains([wrong(1)]) == ()


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_draws_that_hold_a_right_one(drawn: tuple[int, int, int]):
    samples, correct, k = drawn
    draws = list(combinations([index < correct for index in range(samples)], k))
    assert pass_at(samples, correct, k) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_more_than_there_are_cannot_be_drawn():
    with pytest.raises(ValueError, match="3 of 2"):
        pass_at(2, 1, 3)


def test_samples_are_joined_by_task():
    paid = Spent(input_tokens=10, output_tokens=5, money=0.5)
    first = [passed(task(1), {"eager": 2.0}, spent=paid), wrong(2), passed(task(3), {"eager": 0.5})]
    second = [passed(task(1), {"eager": 8.0}), passed(task(2), {"eager": 2.0}), wrong(3)]
    found = sampled([first, second])
    assert (found.samples, found.tasks) == (2, 3)
    assert [(at.k, at.correct, at.fast) for at in found.at] == [
        (1, pytest.approx(2 / 3), pytest.approx(1 / 2)),
        (2, 1.0, pytest.approx(2 / 3)),
    ]
    assert found.geomeans == (pytest.approx(1.0), pytest.approx(4.0))
    assert found.spread == pytest.approx(math.sqrt(4.5))
    assert (found.money, found.tokens) == (0.5, 15)
    missing = sampled([first, second[:1]])
    assert missing.at[0].correct == pytest.approx(1 / 2)
