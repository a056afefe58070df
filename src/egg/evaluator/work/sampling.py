"""Add something up over a long row of similar things by looking at few of them.

Trips of a loop and programs of a grid are mostly alike, or change evenly, except at the ends
and at some places between. So both ends are looked at, and then points between: where one is
not what its neighbours lead to expect, the places of greatest change are closed in on and the
longest gaps are looked into by turns, which finds a few breaks exactly and what repeats on
average.
Between two points the work is taken to change evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isclose

Tally = dict[Hashable, float]
"""Amounts of work by kind."""

_SPLIT_AT = 0.618
"""Not the middle: what repeats with a power of two would look the same at every point."""


def add(total: Tally, more: Tally, weight: float = 1.0) -> None:
    for key, amount in more.items():
        total[key] = total.get(key, 0.0) + weight * amount


def added_up(
    count: int,
    look: Callable[[int], Tally],
    *,
    least: int,
    most: int,
    exact: Callable[[Hashable], bool] = lambda key: True,
    bound: Callable[[Hashable], bool] = lambda key: False,
    enough: Callable[[], bool] = lambda: False,
) -> Tally:
    """The sum of ``look(i)`` for all ``i`` below ``count``, from at most ``most`` of them.

    Fewer than ``least`` are looked at only where ``enough`` says so. Keys that are not
    ``exact`` are summed, but a difference in them is no reason to look closer. A ``bound`` is summed as if
    each were the greatest that was seen.
    """
    seen: dict[int, Tally] = {}

    def visit(index: int) -> Tally:
        if index not in seen:
            seen[index] = look(index)
        return seen[index]

    first = (0, count - 1, count - 2, 1) if count > most else range(count)
    for index in first:
        if seen and enough():
            break
        visit(index)

    def gap(low: int, high: int) -> _Gap:
        return _Gap(_apart(seen[low], seen[high], exact) * (high - low), high - low, low, high)

    gaps = [gap(low, high) for low, high in _gaps(sorted(seen))]
    surprised = False
    while gaps and len(seen) < most and not enough():
        if len(seen) >= least and not surprised and not any(g.open for g in gaps):
            break
        by_turns = surprised and len(seen) % 2 == 0
        chosen = max(gaps, key=lambda g: (g.length, g.low) if by_turns else (g.open, g.unsure, g.length))
        gaps.remove(chosen)
        low, high = chosen.low, chosen.high
        middle = low + max(1, min(chosen.length - 1, round(chosen.length * _SPLIT_AT)))
        expected = _between(seen[low], seen[high], (middle - low) / chosen.length)
        unexpected = _apart(visit(middle), expected, exact) > 0
        surprised = surprised or unexpected
        gaps += [gap(a, b).known(not unexpected) for a, b in _gaps([low, middle, high])]
    total = _sum(seen, count)
    for key in filter(bound, list(total)):
        total[key] = count * max(tally.get(key, 0.0) for tally in seen.values())
    return total


@dataclass(frozen=True)
class _Gap:
    """Between two points that were looked at; ``open`` until a point inside was as expected."""

    unsure: float
    """How much may be wrong if the work between changes otherwise than evenly."""
    length: int
    low: int
    high: int
    open: bool = True

    def known(self, explained: bool) -> _Gap:
        return replace(self, open=not explained)


def _gaps(points: list[int]) -> list[tuple[int, int]]:
    return [(a, b) for a, b in pairwise(points) if b - a > 1]


def _between(a: Tally, b: Tally, share: float) -> Tally:
    return {key: (1 - share) * a.get(key, 0.0) + share * b.get(key, 0.0) for key in a.keys() | b.keys()}


def _apart(a: Tally, b: Tally, exact: Callable[[Hashable], bool]) -> float:
    """How much the amounts of two tallies differ, in all kinds together; 0 where it is only rounding."""
    if a == b:
        return 0.0
    apart = 0.0
    for key in a.keys() | b.keys():
        x, y = a.get(key, 0.0), b.get(key, 0.0)
        if exact(key) and not isclose(x, y, rel_tol=1e-9):
            apart += abs(x - y)
    return apart


def _sum(seen: dict[int, Tally], count: int) -> Tally:
    """Every point by itself, those between two as their mean, those before and after all like the nearest."""
    points = sorted(seen)
    total: Tally = {}
    for point in points:
        add(total, seen[point])
    for low, high in _gaps(points):
        add(total, seen[low], (high - low - 1) / 2)
        add(total, seen[high], (high - low - 1) / 2)
    add(total, seen[points[0]], points[0])
    add(total, seen[points[-1]], count - 1 - points[-1])
    return total
