"""Medians with bootstrap intervals, ratios of interleaved rounds, and the noise floor."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import median

from egg.core.evaluation import Interval

RESAMPLES = 2000


def interval(values: Sequence[float], seed: int = 0) -> Interval:
    """The median of ``values`` with its 95% bootstrap interval (percentile method)."""
    if not values:
        raise ValueError("no values to take a median of")
    generator = random.Random(seed)
    size = len(values)
    medians = sorted(median(generator.choices(values, k=size)) for _ in range(RESAMPLES))
    low, high = medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES) - 1]
    middle = median(values)
    return Interval(middle, min(low, middle), max(high, middle))


def speedup(candidate: Sequence[float], opponent: Sequence[float]) -> Interval:
    """Opponent over candidate, round by round: what drifts between rounds cancels within one."""
    return interval([o / c for c, o in zip(candidate, opponent, strict=True)])


def noise_floor(first: Sequence[float], second: Sequence[float]) -> float:
    """How far an A/A comparison strays from 1: the farther end of its interval."""
    ratio = speedup(first, second)
    return max(abs(math.log(ratio.low)), abs(math.log(ratio.high)))
