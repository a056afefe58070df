"""The little statistics that scores and comparisons share: shares, means over tasks, tests.

Tasks are the sample: intervals say how much a figure would move if other tasks of the same kind had been
asked. They are made from the same random numbers every time, so that two people who score the same rows
read the same digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

RESAMPLES = 2000
SEED = 20_260
Z = 1.959963984540054
"""Standard deviations within which 95% of a normal distribution lie."""

Statistic = Callable[[np.ndarray], np.ndarray]
"""Of samples along the last axis."""


@dataclass(frozen=True)
class Share:
    """``count`` of ``total``, with Wilson's 95% interval; of nothing, no share is known."""

    count: int
    total: int
    value: float | None = field(init=False)
    low: float | None = field(init=False)
    high: float | None = field(init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.count <= self.total:
            raise ValueError(f"not a share: {self.count} of {self.total}")
        known = self.total > 0
        object.__setattr__(self, "value", self.count / self.total if known else None)
        object.__setattr__(self, "low", _wilson(self.count, self.total, -1.0) if known else None)
        object.__setattr__(self, "high", _wilson(self.count, self.total, 1.0) if known else None)


def _wilson(count: int, total: int, side: float) -> float:
    """The share from which this one differs by ``Z`` of that share's own standard deviations."""
    if count == (0 if side < 0 else total):
        return 0.0 if side < 0 else 1.0
    p = count / total
    middle = p + Z * Z / (2 * total)
    spread = Z * math.sqrt(p * (1 - p) / total + Z * Z / (4 * total * total))
    return (middle + side * spread) / (1 + Z * Z / total)


@dataclass(frozen=True)
class Estimate:
    """A figure over ``count`` tasks with its 95% bootstrap interval; one task alone has no interval."""

    value: float
    low: float | None
    high: float | None
    count: int


def mean(values: np.ndarray) -> np.ndarray:
    return values.mean(axis=-1)


def median(values: np.ndarray) -> np.ndarray:
    return np.median(values, axis=-1)


def geomean(values: np.ndarray) -> np.ndarray:
    return np.exp(np.log(values).mean(axis=-1))


def estimate(values: Sequence[float], statistic: Statistic) -> Estimate | None:
    """The statistic with its percentile-bootstrap interval; ``None`` of no values."""
    if not values:
        return None
    sample = np.sort(np.asarray(values, dtype=float))  # rows come in any order; the digits do not follow it
    value = float(statistic(sample))
    if len(values) == 1:
        return Estimate(value, None, None, 1)
    low, high = percentiles(statistic(resampled(sample)))
    return Estimate(value, min(low, value), max(high, value), len(values))


def resampled(sample: np.ndarray, seed: int = SEED) -> np.ndarray:
    """Many samples of the same size, drawn from this one with replacement."""
    chosen = np.random.default_rng(seed).integers(0, len(sample), size=(RESAMPLES, len(sample)))
    return sample[chosen]


def percentiles(values: np.ndarray) -> tuple[float, float]:
    """Between which 95% of the values lie."""
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


def sign_test(one: int, other: int) -> float:
    """How likely a fair coin would fall at least as unevenly as ``one`` to ``other``, either way; ties left
    out."""
    n, k = one + other, min(one, other)
    tail = sum(math.comb(n, i) for i in range(k + 1))
    return min(1.0, float(2 * tail / 2**n)) if n else 1.0
