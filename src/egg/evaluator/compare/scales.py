"""Errors of slices of one scale, beside the reference's errors of the same slices.

Rows that fade, channels in other units, heads with a small gain: a slice that is small as a whole has a
scale of its own, and an error that is nothing beside the largest slices may be the slice itself. Bands of
elements (:mod:`~egg.evaluator.compare.bands`) do not show it: they must allow what the rest of the output
rounds, since one small element may come of a large sum that cancels. A whole slice rarely does, and then the
reference is as wrong in it.

So the output is cut along every dimension, and by its leading ones together (each row of each batch); of all
other sets of dimensions (each channel of each sample, in channels-last order) two are drawn at every
comparison. Slices are pooled by the rms of their elements, in bands two powers of two wide, and the rms error
of a pool is held to the largest of: some times the reference's own in the pool, some roundings of the pool's
rms, twice how far the exact result moves there. Pools, not single slices: over many the luck of the reference
in one evens out, and one slice in a thousand that is lost still shows. No share of the rest of the output is
allowed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import prod

import torch

from egg.evaluator.compare.bands import BANDS, NOWHERE, Band, Limits, on_host, places, sums
from egg.evaluator.compare.part import Part

FINE, COARSE, EIGHT = Limits(32.0, 256.0), Limits(8.0, 8.0), Limits(8.0, 4.0)
"""In fp32, where one rounding dominates any order of summation, and in 8 bits: one step is two roundings."""
FEWEST_IN_SLICE, FEWEST_IN_POOL = 8, 32
"""Elements, in a pool other than zero: of fewer nothing is concluded. A row of which a ReLU left one small
element has no scale: the reference may have lost that one to zero, where its error is only the element."""
MOST_SLICES, MOST_IN_SLICE = 256, 256
"""Of a large output, drawn by lot at every comparison."""
OTHER_CUTS = 2
"""Sets of dimensions beside the usual ones, drawn by lot at every comparison."""

Pool = tuple[tuple[int, ...], int]
"""The dimensions that number the slices, and the band of the slices' rms."""


def worst(
    three: Sequence[torch.Tensor],
    roundoff: float,
    moved: Mapping[Pool, float],
    absolute: float = 0.0,
    limits: Limits = FINE,
    step: float = 0.0,
    part: Part | None = None,
) -> Band:
    """Of the candidate, the reference and the exact result: the pool that is furthest off.

    ``moved``: for each pool what conditioning allows; ``absolute``: what is allowed everywhere; ``step``: the
    distance of the type's smallest numbers, where it is not that of the tensors' own; ``part``: where these
    elements stand, if they are not all.
    """
    found, step = NOWHERE, step or torch.finfo(three[1].dtype).smallest_normal * roundoff
    shape = three[2].shape if part is None else part.shape
    for kept in (*usual_cuts(shape), *_drawn(other_cuts(shape))):
        c, r, g = _slices(three, kept, part)
        usable = torch.isfinite(c) & torch.isfinite(r) & torch.isfinite(g)
        g = torch.where(usable, g, 0.0)
        errors = [torch.where(usable, t - g, 0.0) for t in (r, c)]
        counts, (sizes, ours, theirs) = _pooled(g, (g, *errors))
        for band in range(1, BANDS):
            size, own, off = sizes[band], ours[band], theirs[band]
            if counts[band] < FEWEST_IN_POOL or not off:
                continue
            known = max(limits.own * own, moved.get((kept, band), 0.0), absolute, step)
            ratio = off / max(known, limits.relative * roundoff * size)
            if ratio > found.ratio:
                found = Band(ratio, size, off / size, own / size)
    return found


def rms_by_pool(
    moves: Sequence[torch.Tensor], linear: Callable[..., torch.Tensor], part: Part | None = None
) -> dict[Pool, float]:
    """The rms of ``linear(*moves)`` in each pool of the first of them, the exact result."""
    found: dict[Pool, float] = {}
    shape = moves[0].shape if part is None else part.shape
    for kept in (*usual_cuts(shape), *other_cuts(shape)):
        drawn = _slices(moves, kept, part)
        exact = torch.where(torch.isfinite(drawn[0]), drawn[0], 0.0)
        counts, (means,) = _pooled(exact, (linear(*drawn),))
        found |= {(kept, band): means[band] for band in range(1, BANDS) if counts[band]}
    return found


def _pooled(exact: torch.Tensor, values: Sequence[torch.Tensor]) -> tuple[list[float], list[list[float]]]:
    """Elements other than zero in each pool of slices, and the rms over all there of each of ``values``."""
    bands = places(exact.square().mean(dim=1).sqrt())
    counts = torch.bincount(bands, minlength=BANDS).double() * exact.shape[1]
    means = [(sums(v.square().sum(dim=1), bands) / counts.clamp_min(1.0)).sqrt() for v in values]
    nonzero = sums((exact != 0).sum(dim=1), bands)
    counted, *found = torch.stack([nonzero, *means]).tolist()
    return counted, found


def usual_cuts(shape: torch.Size) -> list[tuple[int, ...]]:
    """The dimensions that number slices: each alone, and the leading ones."""
    dims = range(len(shape))
    found = (*((dim,) for dim in dims), *(tuple(dims[:n]) for n in dims[2:]))
    return [kept for kept in found if _has_slices(shape, kept)]


def other_cuts(shape: torch.Size) -> list[tuple[int, ...]]:
    """All other sets of dimensions that leave slices."""
    dims = range(len(shape))
    found = (kept for n in dims[2:] for kept in combinations(dims, n) if kept != tuple(dims[:n]))
    return [kept for kept in found if _has_slices(shape, kept)]


def _has_slices(shape: torch.Size, kept: tuple[int, ...]) -> bool:
    count = prod(shape[dim] for dim in kept)
    return count > 1 and prod(shape) >= FEWEST_IN_SLICE * count


def _drawn(cuts: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return secrets.SystemRandom().sample(cuts, min(OTHER_CUTS, len(cuts)))


def _slices(tensors: Sequence[torch.Tensor], kept: tuple[int, ...], part: Part | None) -> list[torch.Tensor]:
    """Slices as rows, in fp64 on the host: all, or some of them at some places drawn by lot."""
    if part is not None:
        return on_host(part.slices(tensors, kept, FEWEST_IN_SLICE, (MOST_SLICES, MOST_IN_SLICE)))
    shape = tensors[0].shape
    others = tuple(dim for dim in range(len(shape)) if dim not in kept)
    count, length = (prod(shape[dim] for dim in dims) for dims in (kept, others))
    if count * length <= MOST_SLICES * MOST_IN_SLICE:
        return on_host([t.permute(*kept, *others).reshape(count, length) for t in tensors])
    generator = torch.Generator().manual_seed(secrets.randbits(48))
    rows = torch.randint(count, (min(count, MOST_SLICES), 1), generator=generator)
    places = torch.randint(length, (len(rows), min(length, MOST_IN_SLICE)), generator=generator)
    where = dict(zip(kept, torch.unravel_index(rows, [shape[dim] for dim in kept]), strict=True))
    where |= zip(others, torch.unravel_index(places, [shape[dim] for dim in others]), strict=True)
    device = tensors[0].device
    at = tuple(where[dim].to(device) for dim in range(len(shape)))
    return on_host([t[at] for t in tensors])
