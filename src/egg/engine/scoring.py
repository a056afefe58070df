"""How fast a kernel is, and when one is faster than another.

Two measured kernels usually come from different sessions, between which clocks and
temperature drift; so not their times are compared but their speedups over eager PyTorch,
which was timed in the same session as each. A gain is believed only if it is larger than
what either kernel shows against itself (and than one percent at least), and if the
confidence intervals of the two speedups do not meet.

Where nothing could be measured, predicted times are compared instead. A prediction and a
measurement are never compared: a caller that tries has mixed two runs.
"""

from __future__ import annotations

from egg.analysis.program import predicted_milliseconds
from egg.core.evaluation import Accepted, Compiled, Evaluation, Interval, Measured
from egg.core.step import Gain, Score
from egg.hardware.gpus import Gpu, resolve

PREDICTION_NOISE = 0.05
"""Relative: predictions closer than this do not tell two kernels apart."""

LEAST_GAIN = 0.01
"""A measured gain below one percent is not worth a change of base, however quiet the machine."""

OPPONENT = "eager"


def score(evaluation: Evaluation, gpu: Gpu | None) -> Score | None:
    """What the judge's answer says about speed; ``None`` for a kernel that was refused.

    ``gpu`` is the one that is written for. It is asked only where no GPU measured anything;
    without it, the card that the compiler's target usually means is taken.
    """
    if not isinstance(evaluation.verdict, Accepted):
        return None
    performance = evaluation.verdict.performance
    if isinstance(performance, Measured):
        return _measured(performance)
    library_calls = sum(evaluation.verdict.provenance.library_ops.values())
    return _predicted(performance, gpu or resolve(performance.target), library_calls)


def gain(new: Score, base: Score) -> Gain:
    """``new`` against ``base``; beyond the noise in at most one direction, and never against itself."""
    ratio = _ratio(new, base)
    least = 1 + max(new.noise, base.noise, LEAST_GAIN)
    apart = _speed(new).low > _speed(base).high
    return Gain(ratio, apart and ratio > least, new.measured)


def better(a: Score, b: Score) -> bool:
    """Whether ``a`` is to be returned rather than ``b``: by the median alone."""
    return _ratio(a, b) > 1


def _measured(performance: Measured) -> Score:
    eager = next((b for b in performance.baselines if b.name == OPPONENT), None)
    if eager is None:
        raise ValueError(f"a measured evaluation without a time for {OPPONENT}")
    return Score(
        measured=True,
        milliseconds=performance.milliseconds,
        speedup=eager.speedup,
        noise=performance.noise_floor,
        floor_milliseconds=performance.floor_milliseconds,
        faster=performance.faster,
    )


def _predicted(performance: Compiled, gpu: Gpu, library_calls: int) -> Score:
    time = predicted_milliseconds(performance, gpu, library_calls)
    return Score(
        measured=False,
        milliseconds=Interval(time, time, time),
        speedup=None,
        noise=PREDICTION_NOISE,
        floor_milliseconds=performance.predicted_floor_milliseconds,
        faster=None,
    )


def _ratio(new: Score, base: Score) -> float:
    if new.measured != base.measured:
        raise ValueError("a measured time and a predicted one cannot be compared")
    return _speed(new).median / _speed(base).median


def _speed(score: Score) -> Interval:
    """Larger is faster: the speedup over eager, or runs per millisecond where nothing was measured."""
    if score.speedup is not None:
        return score.speedup
    times = score.milliseconds
    return Interval(1 / times.median, 1 / times.high, 1 / times.low)
