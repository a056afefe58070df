"""Which bytes and which sectors one access of one program touches.

Triton lays the threads of a warp along the axis on which the addresses are contiguous, and
neighbouring warps beside each other. So a sector that several elements of a tile share is
fetched once, and one that they do not share is fetched for each: the distinct sectors of the
tile are what the access moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch

from egg.core.resources import GRANULE_BYTES, SECTOR_BYTES
from egg.evaluator.work.arguments import TensorArgument
from egg.evaluator.work.values import Descriptor, Number, Pointer, at_shape

_SECTOR_SHIFT = SECTOR_BYTES.bit_length() - 1
_GRANULE_SHIFT = (GRANULE_BYTES // SECTOR_BYTES).bit_length() - 1


@dataclass(frozen=True, slots=True)
class Touched:
    """By one access of one program."""

    bytes: float
    sectors: float
    granules: float
    """Pieces of memory in which the sectors lie."""


def touched_by(
    pointer: Pointer,
    mask: Number | None,
    shape: tuple[int, ...],
    itemsize: int,
    tensor: TensorArgument | None,
) -> Touched:
    """Of a load, store or atomic through a tile of pointers.

    Addresses that follow from data are guessed: what is contiguous in them stays so, and where
    they lie is spread over the tensor they point into.
    """
    offset = pointer.offset
    asked = prod(shape) if mask is None else _true_of(mask, shape)
    if not asked or not isinstance(offset, torch.Tensor):
        return Touched(asked * itemsize, min(asked, 1), min(asked, 1))
    if pointer.guessed and tensor is not None and tensor.bytes >= SECTOR_BYTES:
        offset = offset % (tensor.bytes // SECTOR_BYTES * SECTOR_BYTES)
    sectors = (offset + (tensor.misaligned if tensor else 0)) >> _SECTOR_SHIFT
    if mask is not None and asked < prod(shape):
        sectors = at_shape(sectors, shape)[at_shape(mask.value, shape).bool()]
    return Touched(asked * itemsize, _distinct(sectors), _distinct(sectors >> _GRANULE_SHIFT))


def _true_of(mask: Number, shape: tuple[int, ...]) -> int:
    if not isinstance(mask.value, torch.Tensor):
        return prod(shape) if mask.value else 0
    return int(mask.value.sum()) * (prod(shape) // max(1, mask.value.numel()))


def _distinct(sectors: torch.Tensor) -> int:
    """How many different numbers there are. Tiles are usually in order, by rows or by columns."""
    orders = [sectors.reshape(-1)]
    if sectors.dim() > 1:
        orders.append(sectors.transpose(-2, -1).reshape(-1))
    for flat in orders:
        steps = flat[1:] - flat[:-1]
        if not steps.numel() or int(steps.min()) >= 0:
            return int((steps != 0).sum()) + 1
    return int(torch.unique(orders[0]).numel())


def block_touched(descriptor: Descriptor, starts: Sequence[int | None], block: tuple[int, ...]) -> Touched:
    """Of a tile that a descriptor moves: what of it lies inside the tensor, each row in whole sectors."""
    sizes = list(block)
    if descriptor.shape is not None and len(descriptor.shape) == len(block) == len(starts):
        for axis, (start, extent) in enumerate(zip(starts, descriptor.shape, strict=True)):
            if start is not None:
                sizes[axis] = max(0, min(start + block[axis], extent) - max(start, 0))
    rows, run = prod(sizes[:-1]), (sizes[-1] if sizes else 1) * descriptor.itemsize
    return Touched(rows * run, rows * -(-run // SECTOR_BYTES), rows * -(-run // GRANULE_BYTES))
