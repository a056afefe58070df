"""Errors of elements that are equally well conditioned, beside the reference's errors of the same elements.

What is allowed in a band of magnitude (:mod:`~egg.evaluator.compare.bands`) follows the reference's error
there, and that is the error of those elements whose conditioning is worst: the slow waves of an embedding may
be as wrong as the fast ones. So where an output passes for that error or that conditioning alone, being
further off than the roundings that are allowed anyway, its elements are put into pools by how far the exact
result moves when all is off by one rounding. That follows from the program and the inputs, and from no luck
of either side. In each pool the rms error is held to the largest of

* some times the reference's own there, and some roundings of their rms, as in a band of magnitude,
* four times as far as they move themselves,
* what a band of magnitude allows whatever its elements are: roundings of the upper quartile, and those of
  composed functions.

One in fifty of a pool's elements is set aside, those that are furthest off: signs may have cancelled where it
was asked how far they move. What does not move at all is left to the other rules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from egg.evaluator.compare.bands import BANDS, NOWHERE, Band, Limits, places
from egg.evaluator.compare.bands import worst as worst_band
from egg.evaluator.compare.sums import upper_quartile

FEWEST = 32
"""Elements in a pool: of fewer nothing is concluded."""
ASIDE, SHARE_ASIDE = 2, 0.02
MOVES = 4.0
"""Times as far as elements of a pool move."""


def suspected(drawn: Sequence[torch.Tensor], roundoff: float, limits: Limits, absolute: float) -> bool:
    """Whether nothing but the reference's error, or conditioning, allows what a candidate is off by, in some
    band of magnitude.

    ``drawn``: a sample of the candidate, the reference and the exact result.
    """
    return worst_band(drawn, roundoff, {}, absolute, replace(limits, own=0.0)).ratio > 1.0


def worst(drawn: Sequence[torch.Tensor], roundoff: float, limits: Limits, absolute: float) -> Band:
    """Of a sample of the candidate, the reference, the exact result and how far that moves: the pool that is
    furthest off. ``absolute``: what is allowed everywhere."""
    usable = torch.stack([torch.isfinite(t) for t in drawn]).all(dim=0)
    c, r, g, moves = (t[usable] for t in drawn)
    pools = places(moves)
    least = max(limits.absolute * roundoff * upper_quartile(g.abs()[g != 0]), absolute, 1e-300)
    counts = torch.bincount(pools, minlength=BANDS)
    found = NOWHERE
    for pool in (counts >= FEWEST).nonzero().reshape(-1).tolist():
        if not pool:
            continue
        here = pools == pool
        size, ours, moved = (_rms(t[here]) for t in (g, r - g, moves))
        kept = (c - g)[here].abs().sort().values
        off = _rms(kept[: len(kept) - ASIDE - int(SHARE_ASIDE * len(kept))])
        allowed = max(limits.own * ours, limits.relative * roundoff * size, MOVES * moved, least)
        if size and off / allowed > found.ratio:
            found = Band(off / allowed, size, off / size, ours / size)
    return found


def _rms(values: torch.Tensor) -> float:
    return math.sqrt(float(values.square().mean()))
