"""Elements too small, and too many, to come of large ones that cancel.

What is allowed in a band of magnitude follows the upper quartile of the output
(:mod:`~egg.evaluator.compare.bands`): a small element may be a sum of large terms that cancel, and then it is
as wrong as they are. Scores beside masks of -1e9 are no such elements, nor are seven of 1e-9 among a thousand
of 1. Chance says so: sums of terms of a size ``t`` lie anywhere below it, so of ``n`` such sums about
``n s / t`` are smaller than ``s``; somewhat more where factors meet, each of which may be small: with
``d = log2(t / s)`` a part of ``2^-d (1 + d ln 2)^2``, for three of them.

So for every size ``s``, and every size ``t`` above it: of the elements below ``s`` no more may be off by the
roundings of anything larger than ``t`` than the elements that are larger than ``t`` explain; by how many more
chance goes once in a million is added. As many are set aside, those that are furthest off. The rms error of
the others is held to the largest of

* some times the reference's own error of the elements below ``s``,
* some roundings of their rms, and some of ``t``,
* twice how far the exact result moves there, functions among the operations by absolute roundings too
  (:class:`~egg.evaluator.compare.compare.Moved`): ``log(1 + exp(x))`` is right for a softplus.

All elements below ``s`` together, and not those of a band, since few of them may lie in any one. Elements of
one value are one: a sum that is written to a whole row cancels once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from egg.evaluator.compare.bands import BANDS, NOWHERE, WIDTH, Band, Limits, places, sums

CHANCE = 1e-6
"""How often more elements cancel than are set aside, where they do so at random."""


@dataclass(frozen=True)
class _Below:
    """For each band, of the elements in it and below."""

    sizes: list[float]
    """The rms of the exact ones."""
    ours: list[float]
    """The reference's rms error."""
    theirs: list[float]
    """The candidate's."""
    allowed: list[float]
    """What that may be if no larger element has a part in it."""


def worst(
    three: Sequence[torch.Tensor],
    roundoff: float,
    moved: Mapping[int, float],
    limits: Limits,
    step: float = 0.0,
) -> Band:
    """Of a sample of the candidate, the reference and the exact result: the size below which elements are the
    furthest off that nothing larger explains.

    ``moved``: for each band what conditioning allows; ``step``: what is allowed to every element.
    """
    c, r, g = (t.reshape(-1) for t in three)
    usable = torch.isfinite(c) & torch.isfinite(r) & torch.isfinite(g)
    bands = torch.where(usable, places(g), 0)
    errors = torch.where(usable, (c - g).abs(), 0.0)
    below = _below(g, torch.where(usable, r - g, 0.0), errors, bands, roundoff, moved, limits, step)
    suspects = [b for b in range(1, BANDS) if below.theirs[b] > below.allowed[b]]
    if not suspects:
        return NOWHERE
    once = _one_of_each(g, errors, bands)
    counts = torch.bincount(bands[once], minlength=BANDS).tolist()
    return max(
        (
            found
            for b in suspects
            for found in _ratios(b, errors[once], bands[once], counts, below, roundoff, limits)
        ),
        key=lambda band: band.ratio,
        default=NOWHERE,
    )


def _ratios(
    band: int,
    errors: torch.Tensor,
    bands: torch.Tensor,
    counts: Sequence[int],
    below: _Below,
    roundoff: float,
    limits: Limits,
) -> Iterator[Band]:
    """How far the elements in a band and below are off, beside what each size above them leaves to explain.

    ``errors`` ascend.
    """
    squares = errors[bands <= band].square().cumsum(0)
    for size in range(band, BANDS):
        if size > band and not counts[size]:
            continue
        kept = len(squares) - aside(explained(counts, band, size))
        if kept < 1:
            continue
        off = math.sqrt(float(squares[kept - 1]) / kept)
        allowed = max(below.allowed[band], limits.absolute * roundoff * _middle(size))
        scale = below.sizes[band]
        yield Band(off / allowed, scale, off / scale, below.ours[band] / scale)


def explained(counts: Sequence[int], band: int, size: int) -> float:
    """How many elements in ``band`` and below come of ones above ``size`` that cancel: the average, at most.

    ``counts``: elements in each band.
    """
    total = 0.0
    for above in range(size + 1, BANDS):
        depth = WIDTH * (above - band) - 1.0
        share = 2.0**-depth * (1.0 + depth * math.log(2.0)) ** 2
        total += counts[above] * min(share, 1.0)
    return total


def aside(expected: float) -> int:
    """The least number that a count of rare events, ``expected`` on average, exceeds so rarely (Chernoff)."""
    if expected <= 0.0:
        return 0
    count = math.ceil(expected)
    while (more := count + 1) * math.log(more / expected) - more + expected < -math.log(CHANCE):
        count += 1
    return count


def _middle(band: int) -> float:
    """The size of an element in a band."""
    return 2.0 ** (WIDTH * (band - BANDS // 2) + WIDTH / 2.0)


def _below(
    g: torch.Tensor,
    own: torch.Tensor,
    errors: torch.Tensor,
    bands: torch.Tensor,
    roundoff: float,
    moved: Mapping[int, float],
    limits: Limits,
    step: float,
) -> _Below:
    """Of the exact elements, the reference's errors ``own`` and the candidate's."""
    counts = torch.bincount(bands, minlength=BANDS).double()
    moves = torch.tensor([moved.get(band, 0.0) for band in range(BANDS)], dtype=torch.float64)
    totals = torch.stack(
        [
            *(sums(t.square(), bands) for t in (g.nan_to_num(0.0, 0.0, 0.0), own, errors)),
            counts * moves**2,
        ]
    )
    counts[0], totals[:, 0] = 0.0, 0.0
    sizes, ours, theirs, moves = (totals.cumsum(1) / counts.cumsum(0).clamp_min(1.0)).sqrt()
    allowed = torch.maximum(limits.own * ours, limits.relative * roundoff * sizes)
    allowed = torch.maximum(allowed, moves).clamp_min_(max(step, 1e-300))
    return _Below(sizes.tolist(), ours.tolist(), theirs.tolist(), allowed.tolist())


def _one_of_each(g: torch.Tensor, errors: torch.Tensor, bands: torch.Tensor) -> torch.Tensor:
    """Where elements of different values stand, by their errors; of those of one value the one that is the
    furthest off."""
    order = errors.argsort()
    order = order[bands[order] > 0]
    kinds, which = torch.unique(g[order], return_inverse=True)
    last = torch.zeros(len(kinds), dtype=torch.int64)
    last.scatter_reduce_(0, which, torch.arange(len(order)), "amax")
    return order[last.sort().values]
