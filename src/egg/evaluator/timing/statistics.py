"""Medians with bootstrap intervals, ratios of interleaved rounds, and the noise floor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import torch

from egg.core.evaluation import Interval

RESAMPLES = 2000


def interval(values: Sequence[float], seed: int = 0) -> Interval:
    """The median of ``values`` with its 95% bootstrap interval (percentile method).

    All resamples are drawn in one tensor: other judges wait for the GPU while intervals are computed.
    """
    if not values:
        raise ValueError("no values to take a median of")
    size, generator = len(values), torch.Generator().manual_seed(seed)
    drawn = torch.randint(size, (RESAMPLES, size), generator=generator, device="cpu")
    resamples = torch.tensor(values, dtype=torch.float64, device="cpu")[drawn].sort(1).values
    medians = ((resamples[:, (size - 1) // 2] + resamples[:, size // 2]) / 2).sort().values.tolist()
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
