"""Inputs of which few slices make up most: a sum that leaves any of them out is another one.

The mean of many random numbers is hardly another one where half of them are left out, and at large sizes that
is less than 16 bits show. So slices along one dimension are given sizes that fall with their rank, in an
order that is drawn by lot: the largest makes up a third of the sum of all, the largest four two thirds, and
they lie anywhere. Sizes stay between those of the distributions ``tiny`` and ``large``
(:mod:`egg.evaluator.task.distributions`).
"""

from __future__ import annotations

from typing import Any

import torch

from egg.evaluator.task.program import map_tensors, restrided
from egg.evaluator.tensors.reals import EIGHT_BITS

FEWEST = 16
"""Slices."""
TURNS = 3
FALL, LEAST, LARGEST = 1.5, 1e-4, 8.0
"""The power of the rank, and the smallest and the largest factor."""
MOST_OF_HALF = 64.0
"""What an element of 16 bits may become: squares and their sums overflow soon."""


@torch.no_grad()
def spread(inputs: list[Any], turn: int, seed: int, largest: float = LARGEST) -> list[Any]:
    """``inputs`` with the slices of every floating tensor scaled, where it is long enough.

    Along its longest dimension at the first ``turn``, the next shorter one at the second, and all others at
    the third: a mean over an image has a sum along both of its sides. The same objects where nothing is
    changed.
    """
    generator = torch.Generator().manual_seed(seed)

    def change(tensor: torch.Tensor) -> torch.Tensor:
        dims = [dim for dim, size in enumerate(tensor.shape) if size >= FEWEST]
        dims.sort(key=lambda dim: -tensor.shape[dim])
        dims = dims[turn:] if turn == TURNS - 1 else dims[turn : turn + 1]
        inexact = (tensor.is_floating_point() or tensor.is_complex()) and tensor.dtype not in EIGHT_BITS
        if not inexact or not dims or _repeats(tensor):
            return tensor
        factors = torch.full((1,) * tensor.dim(), _largest(tensor, largest))
        for dim in dims:
            ranks = 1.0 + torch.randperm(tensor.shape[dim], generator=generator)
            factors = factors * (ranks**-FALL).reshape(-1, *(1 for _ in tensor.shape[dim + 1 :]))
        made = restrided(tensor, torch.clone)
        made.mul_(factors.clamp_min_(LEAST).to(tensor.device, tensor.dtype))
        return made.requires_grad_(tensor.requires_grad)

    return map_tensors(inputs, change)


def _largest(tensor: torch.Tensor, most: float) -> float:
    if tensor.dtype.itemsize > 2:
        return most
    size = float(tensor.abs().amax())
    return min(most, max(1.0, MOST_OF_HALF / max(size, 1e-30))) if size < float("inf") else 1.0


def _repeats(tensor: torch.Tensor) -> bool:
    """Whether elements share memory: an expanded tensor, windows that overlap."""
    span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return span < tensor.numel() or 0 in tensor.stride()
