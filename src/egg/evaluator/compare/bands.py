"""Errors of elements of one magnitude, beside the reference's errors of the same elements.

A limit for a whole output follows its large elements. Below them all others could be off by a part of
themselves that no rounding explains: the small probabilities of a softmax by a hundredth, columns in 16 bits
beside a few in other units. So elements are put into bands of magnitude, two powers of two wide, and in each
the rms error is held to the largest of (in fp32; the numbers in brackets where one rounding dominates any
order of summation: 16 bits, TF32; in 8 bits 4 u of the band, which is two steps of the type)

* 32 [8] times the reference's own there: results that cancel are as wrong in the reference,
* 64 u [16 u] of the band, which covers an exponential by powers of two,
* 32 u [1 u] of the output's upper quartile: functions and convolutions whose error is absolute, other orders
  of summation, other roundings on the way,
* twice how far the exact result moves in the band under the roundings of inputs and operations
  (:class:`~egg.evaluator.compare.compare.Moved`).

Small elements that make up whole slices are held to their own scale alone
(:mod:`~egg.evaluator.compare.scales`), and so are those of which there are more than cancelling explains
(:mod:`~egg.evaluator.compare.populations`). Of an output of few elements each is held to its own
(:func:`of_few`): no band has enough of them.

A sample of the elements is enough: what one in a million is off by is held to the limits of the whole output.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from egg.evaluator.compare.sums import upper_quartile

FEWEST = 8
"""Elements in a band: of fewer nothing is concluded."""
FEW = 96
"""Elements of an output: of no more, each is looked at by itself."""
SAMPLE = 1 << 17
BANDS = 128
WIDTH = 2.0
"""Powers of two in a band."""
LEAST = 1e-30
"""Smaller numbers may be flushed to zero."""


@dataclass(frozen=True)
class Limits:
    """What elements of one magnitude may be off."""

    own: float
    """Times the reference's error of the same elements."""
    relative: float
    """Roundings of their rms."""
    absolute: float = 0.0
    """Roundings of the upper quartile of all elements but zeros."""


FINE, COARSE, EIGHT = Limits(32.0, 64.0, 32.0), Limits(8.0, 16.0, 1.0), Limits(8.0, 4.0, 1.0)
"""In fp32, where one rounding dominates any order of summation, and in 8 bits: one step is two roundings."""
FINE_EACH, COARSE_EACH, EIGHT_EACH = Limits(32.0, 256.0, 128.0), Limits(8.0, 16.0, 4.0), Limits(8.0, 4.0, 4.0)
"""The same for a single element, of which the reference may be exact by luck."""


@dataclass(frozen=True)
class Band:
    """The band in which an output is the furthest from what is allowed, and how far."""

    ratio: float = 0.0
    size: float = 0.0
    """The rms of its elements."""
    relative: float = 0.0
    reference: float = 0.0
    """Of the candidate and of the reference: the rms error relative to that."""


NOWHERE = Band()


def places(exact: torch.Tensor) -> torch.Tensor:
    """The band of each element, beginning with 1; 0 for what is no number, too small, or zero."""
    size = exact.double().abs()
    usable = torch.isfinite(size) & (size > LEAST)
    band = torch.where(usable, size, 1.0).log2().div_(WIDTH).floor_().add_(BANDS // 2)
    return torch.where(usable, band.clamp_(1, BANDS - 1), 0).long()


def sums(values: torch.Tensor, bands: torch.Tensor) -> torch.Tensor:
    """Of the values in each band."""
    return torch.bincount(bands.reshape(-1), values.double().reshape(-1), BANDS)


def rms_by_band(errors: torch.Tensor, exact: torch.Tensor) -> dict[int, float]:
    """The rms of ``errors`` in each band of the exact result that has elements."""
    bands = places(exact)
    counts = torch.bincount(bands.reshape(-1), minlength=BANDS).double()
    means = (sums(errors.square(), bands) / counts.clamp_min(1.0)).sqrt().tolist()
    return {band: means[band] for band in range(1, BANDS) if means[band] > 0.0}


def worst(
    three: Sequence[torch.Tensor],
    roundoff: float,
    moved: Mapping[int, float],
    absolute: float = 0.0,
    limits: Limits = FINE,
) -> Band:
    """Of the candidate, the reference and the exact result: the band that is furthest off.

    ``moved``: for each band what conditioning allows; ``absolute``: what is allowed everywhere.
    """
    c, r, g = sample(three)
    usable = torch.isfinite(c) & torch.isfinite(r) & torch.isfinite(g)
    c, r, g = (t[usable] for t in (c, r, g))
    bands = places(g)
    counts = torch.bincount(bands, minlength=BANDS).double()
    sizes, ours, theirs = (
        (sums(t.square(), bands) / counts.clamp_min(1.0)).sqrt().tolist() for t in (g, r - g, c - g)
    )
    least = limits.absolute * roundoff * upper_quartile(g.abs()[bands > 0])
    found = NOWHERE
    for band in (counts >= FEWEST).nonzero().reshape(-1).tolist():
        if not band or not theirs[band]:
            continue
        allowed = max(
            limits.own * ours[band],
            limits.relative * roundoff * sizes[band],
            least,
            absolute,
            moved.get(band, 0.0),
        )
        ratio = theirs[band] / allowed
        if ratio > found.ratio:
            size = sizes[band]
            found = Band(ratio, size, theirs[band] / size, ours[band] / size)
    return found


def of_few(
    three: Sequence[torch.Tensor], roundoff: float, moved: Sequence[float], limits: Limits, step: float = 0.0
) -> Band:
    """The element that is furthest off, each measured by itself: a penalty beside an energy.

    ``moved``: how far each element of the exact result moves when all is off by one rounding. As many times
    that is allowed as roundings of the element itself, since a sum that cancels rounds by its terms.
    ``step``: what is allowed to every element.
    """
    c, r, g = on_host([t.reshape(-1) for t in three])
    size, ours, theirs = g.abs(), (r - g).abs(), (c - g).abs()
    follows = torch.tensor([*moved] or [0.0], dtype=torch.float64).expand_as(g)
    allowed = torch.maximum(limits.own * ours, limits.relative * torch.maximum(roundoff * size, follows))
    usable = torch.isfinite(theirs) & torch.isfinite(ours) & (size > LEAST)
    if not bool(usable.any()):
        return NOWHERE
    ratios = torch.where(usable, theirs / allowed.clamp_min(max(step, 1e-300)), 0.0)
    at = int(torch.where(usable, ratios, -1.0).argmax())
    scale = float(size[at])
    return Band(float(ratios[at]), scale, float(theirs[at]) / scale, float(ours[at]) / scale)


def sample(three: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """All elements, or as many as are enough at places drawn by lot, in fp64 on the host."""
    count = three[2].numel()
    if count <= SAMPLE:
        return on_host([t.reshape(-1) for t in three])
    generator = torch.Generator().manual_seed(secrets.randbits(48))
    at = torch.randint(count, (SAMPLE,), generator=generator).to(three[2].device)
    where = torch.unravel_index(at, three[2].shape)
    return on_host([t[where] for t in three])


def on_host(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """In fp64 on the host, by one copy.

    What is drawn is small, and what is done with it takes dozens of small steps with a look at each result:
    milliseconds of one core, and as long on a GPU, many times that on one which other judges use as well.
    """
    if not any(t.is_cuda for t in tensors):
        return [t.double() for t in tensors]
    return list(torch.stack([t.double() for t in tensors]).cpu())
