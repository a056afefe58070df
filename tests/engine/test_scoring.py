"""When a kernel counts as faster: intervals apart, beyond the noise, like compared with like."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.analysis.program import predicted_milliseconds
from egg.core.evaluation import Accepted, Baseline, Compiled, Interval, Measured
from egg.core.step import Score
from egg.engine.scoring import LEAST_GAIN, PREDICTION_NOISE, better, gain, score
from egg.hardware.gpus import resolve
from tests import samples


def measured(speedup: float, spread: float = 0.001, noise: float = 0.002, milliseconds: float = 1.0) -> Score:
    around = Interval(speedup, speedup * (1 - spread), speedup * (1 + spread))
    return Score(True, Interval(milliseconds, milliseconds, milliseconds), around, noise, None, speedup > 1)


def predicted(milliseconds: float) -> Score:
    time = Interval(milliseconds, milliseconds, milliseconds)
    return Score(False, time, None, PREDICTION_NOISE, None, None)


positive = st.floats(1e-3, 1e3)
measured_scores = st.builds(measured, positive, st.floats(0, 0.5), st.floats(0, 0.5), positive)
scores = st.one_of(
    st.tuples(measured_scores, measured_scores),
    st.tuples(st.builds(predicted, positive), st.builds(predicted, positive)),
)


@given(scores)
def test_two_kernels_are_never_both_the_faster_one(pair: tuple[Score, Score]) -> None:
    a, b = pair
    assert not (gain(a, b).beyond_noise and gain(b, a).beyond_noise)
    assert not (better(a, b) and better(b, a))
    if gain(a, b).beyond_noise:
        assert better(a, b)


@given(scores)
def test_a_score_is_no_gain_over_itself(pair: tuple[Score, Score]) -> None:
    for one in pair:
        assert gain(one, one).ratio == 1
        assert not gain(one, one).beyond_noise
        assert not better(one, one)


def test_sessions_are_compared_by_their_speedup_over_eager_not_by_their_times() -> None:
    slow_session = measured(2.0, milliseconds=3.0)
    fast_session = measured(1.5, milliseconds=1.0)
    assert gain(slow_session, fast_session).ratio == pytest.approx(4 / 3)
    assert gain(slow_session, fast_session).beyond_noise
    assert better(slow_session, fast_session)


def test_a_gain_inside_the_noise_of_either_is_none() -> None:
    assert not gain(measured(1.04, noise=0.05), measured(1.0)).beyond_noise
    assert not gain(measured(1.04), measured(1.0, noise=0.05)).beyond_noise
    assert gain(measured(1.06, noise=0.05), measured(1.0)).beyond_noise


def test_a_gain_below_one_percent_is_none_on_the_quietest_machine() -> None:
    still = {"spread": 0.0, "noise": 0.0}
    assert not gain(measured(1 + LEAST_GAIN * 0.9, **still), measured(1.0, **still)).beyond_noise
    assert gain(measured(1 + LEAST_GAIN * 1.1, **still), measured(1.0, **still)).beyond_noise


def test_intervals_that_meet_are_no_gain_however_far_the_medians() -> None:
    wide = measured(1.3, spread=0.2)
    assert not gain(wide, measured(1.1)).beyond_noise
    assert better(wide, measured(1.1))


def test_predictions_are_compared_by_time_beyond_their_own_noise() -> None:
    assert gain(predicted(1.0), predicted(2.0)).ratio == pytest.approx(2.0)
    assert gain(predicted(1.0), predicted(2.0)).beyond_noise
    assert not gain(predicted(1.0), predicted(2.0)).measured
    assert not gain(predicted(1.0), predicted(1.04)).beyond_noise


def test_a_measurement_is_never_compared_with_a_prediction() -> None:
    for compare in (gain, better):
        with pytest.raises(ValueError, match="cannot be compared"):
            compare(measured(1.2), predicted(1.0))
        with pytest.raises(ValueError, match="cannot be compared"):
            compare(predicted(1.0), measured(1.2))


def test_a_measured_evaluation_is_scored_against_eager() -> None:
    found = score(samples.measured(1.8), None)
    assert found is not None
    assert found.measured
    assert found.speedup is not None
    assert found.speedup.median == 1.8
    assert found.noise == 0.0061
    assert found.faster is True
    assert found.headroom == pytest.approx(0.0402 / 0.028)


def test_eager_is_found_wherever_it_stands_and_missed_where_it_is_not() -> None:
    evaluation = samples.measured(1.8)
    assert isinstance(evaluation.verdict, Accepted)
    verdict, performance = evaluation.verdict, evaluation.verdict.performance
    assert isinstance(performance, Measured)

    def with_baselines(*baselines: Baseline) -> Score | None:
        other = dataclasses.replace(performance, baselines=baselines)
        changed = dataclasses.replace(verdict, performance=other)
        return score(dataclasses.replace(evaluation, verdict=changed), None)

    assert with_baselines(*reversed(performance.baselines)) == score(evaluation, None)
    with pytest.raises(ValueError, match="eager"):
        with_baselines(*performance.baselines[1:])


def test_a_compiled_evaluation_is_predicted_for_the_gpu_that_is_written_for() -> None:
    evaluation = samples.compiled()
    assert isinstance(evaluation.verdict, Accepted)
    assert isinstance(evaluation.verdict.performance, Compiled)
    gpu = resolve("A100")
    found = score(evaluation, gpu)
    assert found is not None
    assert not found.measured
    assert (found.speedup, found.faster, found.noise) == (None, None, PREDICTION_NOISE)
    assert found.milliseconds.median == predicted_milliseconds(evaluation.verdict.performance, gpu)
    assert found.floor_milliseconds == 0.028


def test_without_a_gpu_the_compilers_target_says_which_card() -> None:
    assert score(samples.compiled(), None) == score(samples.compiled(), resolve("sm_90"))


def test_what_was_refused_has_no_score() -> None:
    assert score(samples.rejected(), None) is None
