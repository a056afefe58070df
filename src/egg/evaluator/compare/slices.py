"""Whole slices of an output that are small beside the rest: rows or channels with a scale of their own.

One small element among large ones may come of a sum that cancels, and then its error is the large ones'. A
slice of which every element is small has a scale of its own (a gain of 1e-6 in a bank of gains), and an error
as large as the slice itself is a lost slice, however small that is beside the rest of the output. Not so
where a function that kernels compose of others has an absolute error as large: of a softplus far below zero
``log(1 + exp(x))`` leaves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from egg.evaluator.compare.bands import BANDS, places

SMALL = 1e-4
"""Of the upper quartile: a slice below it is looked at by itself."""
SOME = 0.02
"""Of the elements: where fewer are small, and not zero, no slice is looked for."""
LOST = 0.1
"""Of a slice's rms: an error beyond it is a loss, where the reference's own is sixteen times smaller."""
OTHERS = 16.0
LEAST = 1e-30
"""Smaller numbers may be flushed to zero."""
FEWEST = 8
"""Slices, and elements in one."""


def spread(sizes: torch.Tensor, quartile: float) -> bool:
    """Whether a sample of sizes has small ones enough for a slice."""
    small = (sizes > LEAST) & (sizes < SMALL * quartile)
    return bool(small.sum() > SOME * len(sizes))


def lost(three: Sequence[torch.Tensor], quartile: float, own: float, functions: Mapping[int, float]) -> int:
    """Elements in slices of which the candidate lost the value; of the dimension that shows most.

    ``own``: of its own size, by how much an element of this precision may be off. ``functions``: for each
    band of magnitude the rms by which composed functions may be.
    """
    golden = three[2]
    composed = torch.tensor([functions.get(band, 0.0) for band in range(BANDS)], dtype=torch.float64)
    found = 0
    for dim in range(golden.dim()):
        size = golden.shape[dim]
        if size < FEWEST or golden.numel() < FEWEST * size:
            continue
        peaks = golden.transpose(0, dim).reshape(size, -1).abs().amax(dim=1)
        small = ((peaks < SMALL * quartile) & (peaks > LEAST)).nonzero().reshape(-1)
        if not len(small):
            continue
        c, r, g = (t.index_select(dim, small).transpose(0, dim).flatten(1).double() for t in three)
        rms = g.square().mean(dim=1).sqrt()
        off, usual = ((t - g).square().mean(dim=1).sqrt() for t in (c, r))
        gone = (off > max(LOST, 2.0 * own) * rms) & (off > OTHERS * usual)
        gone &= off > composed.to(off.device)[places(rms)]
        found = max(found, int(gone.sum()) * g.shape[1])
    return found
