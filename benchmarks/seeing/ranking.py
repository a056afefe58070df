"""How well predicted times agree with measured ones: rank correlation, and error as a factor."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median


def ranks(values: Sequence[float]) -> list[float]:
    """From 1; equal values share the mean of their places."""
    order = sorted(range(len(values)), key=values.__getitem__)
    places = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for i in order[first : last + 1]:
            places[i] = (first + last) / 2 + 1
        first = last + 1
    return places


def spearman(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Correlation of the ranks; ``None`` where fewer than two differ, so that nothing is ranked."""
    if len(one) != len(other):
        raise ValueError(f"{len(one)} values against {len(other)}")
    a, b = ranks(one), ranks(other)
    if len(set(a)) < 2 or len(set(b)) < 2:
        return None
    mean_a, mean_b = mean(a), mean(b)
    together = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    spread = sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b)
    return together / spread**0.5


def factor(predicted: float, measured: float) -> float:
    """How many times too long or too short; 1 is right."""
    if predicted <= 0 or measured <= 0:
        raise ValueError(f"times are above zero: {predicted} predicted, {measured} measured")
    return max(predicted / measured, measured / predicted)


def median_factor(predicted: Sequence[float], measured: Sequence[float]) -> float:
    return median(factor(p, m) for p, m in zip(predicted, measured, strict=True))
