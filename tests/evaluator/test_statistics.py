"""Medians with intervals that mean what they say."""

from __future__ import annotations

import math
import random
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.evaluator.timing import statistics
from egg.evaluator.timing.statistics import interval, noise_floor, speedup

TIMES = st.floats(min_value=1e-4, max_value=1e4)


@settings(max_examples=20, deadline=None)
@given(st.lists(TIMES, min_size=1, max_size=30))
def test_an_interval_holds_its_median_and_lies_within_the_data(values):
    found = interval(values)
    assert found.median == median(values)
    assert min(values) <= found.low <= found.median <= found.high <= max(values)


def test_the_same_data_give_the_same_interval():
    values = [random.Random(1).gauss(1, 0.1) for _ in range(24)]
    assert interval(values) == interval(values)


def test_the_interval_holds_the_true_median_about_95_times_in_100(monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 300)
    generator = random.Random(7)
    trials = 200
    held = 0
    for _ in range(trials):
        found = interval(
            [generator.lognormvariate(0.0, 0.1) for _ in range(24)], generator.randrange(1 << 30)
        )
        held += found.low <= 1.0 <= found.high
    assert 0.88 <= held / trials <= 0.995


def test_more_rounds_narrow_the_interval():
    generator = random.Random(3)
    values = [generator.gauss(1.0, 0.05) for _ in range(200)]
    few, many = interval(values[:12]), interval(values)
    assert many.high - many.low < few.high - few.low


def test_drift_between_rounds_cancels_in_the_ratio():
    generator = random.Random(5)
    drift = [1.0 + 0.5 * i / 23 for i in range(24)]
    candidate = [d * generator.gauss(1.0, 0.002) for d in drift]
    opponent = [2.0 * d * generator.gauss(1.0, 0.002) for d in drift]
    ratio = speedup(candidate, opponent)
    assert ratio.low == pytest.approx(2.0, rel=0.005)
    assert ratio.high == pytest.approx(2.0, rel=0.005)
    alone = interval(candidate)
    assert (alone.high - alone.low) / alone.median > 10 * (ratio.high - ratio.low) / ratio.median


def test_a_faster_candidate_has_a_speedup_above_one():
    assert speedup([1.0] * 8, [3.0] * 8).median == 3.0
    assert speedup([3.0] * 8, [1.0] * 8).median == pytest.approx(1 / 3)


def test_rounds_must_come_in_pairs():
    with pytest.raises(ValueError, match="zip"):
        speedup([1.0, 2.0], [1.0])


def test_the_noise_floor_of_identical_data_is_zero():
    values = [1.0 + 0.1 * i for i in range(12)]
    assert noise_floor(values, values) == 0.0


def test_the_noise_floor_grows_with_the_noise_and_knows_no_direction():
    generator = random.Random(11)
    first = [generator.gauss(1.0, 0.05) for _ in range(24)]
    second = [generator.gauss(1.0, 0.05) for _ in range(24)]
    quiet = noise_floor([1 + (v - 1) / 10 for v in first], [1 + (v - 1) / 10 for v in second])
    loud = noise_floor(first, second)
    assert 0 < quiet < loud < 0.1
    assert noise_floor(second, first) == pytest.approx(loud, rel=0.25)


def test_a_constant_bias_is_noise_too():
    assert noise_floor([1.0] * 8, [1.1] * 8) == pytest.approx(math.log(1.1))


def test_nothing_has_no_median():
    with pytest.raises(ValueError, match="no values"):
        interval([])
