"""Rare legal values of integer inputs and of weights: the ends of a range, zero and one, what a file names.

Of a table of many rows few indices are drawn, and a weight is never exactly zero: a kernel that divides by a
weight, or has another answer for row 777, is right at everything that is drawn. As in
:mod:`~egg.evaluator.task.unusual` the file's own text says which values it treats apart.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import nn

from egg.evaluator.task.distinct import SEEN, differ_somehow, is_whole
from egg.evaluator.task.program import map_tensors, restrided
from egg.evaluator.task.unusual import Constants

LARGEST_WEIGHT = 16.0
"""Constants beyond it would be the only weights that count."""
SHARE = 8
"""At most one element in so many is changed."""
FEWEST = 4
"""Different values: of fewer an integer is a flag or a mask."""
TRIES = 8
"""Places that are looked at for one value."""


@torch.no_grad()
def rare_weights(module: nn.Module, known: Constants, seed: int) -> None:
    """Put zero, one, a large one and the file's constants, of either sign, among the parameters, in place."""
    lot = random.Random(seed)
    numbers = [0.0, 1.0, -1.0, 64.0, -64.0] + [
        s * v for v in known.values if v <= LARGEST_WEIGHT for s in (1, -1)
    ]
    for parameter in module.parameters():
        count = min(len(numbers), parameter.numel() // SHARE)
        if parameter.is_floating_point() and count:
            values = parameter.new_tensor(lot.sample(numbers, count))
            places = torch.tensor(lot.sample(range(parameter.numel()), count), device=parameter.device)
            parameter[torch.unravel_index(places, parameter.shape)] = values


def rare_integers(inputs: list[Any], known: Constants, sizes: set[int], seed: int) -> list[Any]:
    """Copies of ``inputs`` in which integer tensors hold the constants of the file that they may hold.

    A value may stand where its row and its column have smaller and larger ones; what is sorted, a permutation
    or a mask stays as it is. ``sizes`` are those of tables that may be indexed: the last row is legal where
    more than half of the table was drawn from, and the first is.
    """
    lot = random.Random(seed)

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if not is_whole(tensor):
            return tensor
        return restrided(tensor, torch.clone) if not _free(tensor) else _put(tensor, known, sizes, lot)

    return map_tensors(inputs, change)


def with_integer(inputs: list[Any], value: int, seed: int) -> list[Any]:
    """Copies of ``inputs`` in which some integers are ``value``: an index from the end, a class to ignore, a
    number beyond 32 bits.

    The program says by its answer whether that is legal. What is sorted, a permutation, a mask or too narrow
    for the value stays. Where values differ along a dimension they may be places to store at, each once: only
    the largest is replaced then, and none where another may be the same place counted from the end.
    """
    lot = random.Random(seed)

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if not is_whole(tensor) or not _holds(tensor.dtype, value) or not _free(tensor):
            return tensor
        made = restrided(tensor, torch.clone)
        if differ_somehow(tensor):
            last = tensor.max()
            if value < 0 and bool(((tensor > last + value) & (tensor < last)).any()):
                return tensor
            made[torch.unravel_index(tensor.argmax(), tensor.shape)] = value
            return made
        for _ in range(max(1, tensor.numel() // (4 * SHARE))):
            made[_place(tensor, lot)] = value
        return made

    return map_tensors(inputs, change)


def _holds(dtype: torch.dtype, value: int) -> bool:
    return torch.iinfo(dtype).min <= value <= torch.iinfo(dtype).max


def with_masks(inputs: list[Any], others: list[Any], share: float, seed: int) -> list[Any]:
    """``inputs`` with masks of which so much is true.

    ``others`` is a second draw: a mask that is the same in both is part of the program, and stays. One that
    is true up to a place in every row, or from it on, is made of lengths: it becomes wholly true or false, or
    stays.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = iter(_tensors(others))

    def change(tensor: torch.Tensor) -> torch.Tensor:
        other = next(drawn, tensor)
        if tensor.dtype is not torch.bool or other.shape != tensor.shape or torch.equal(tensor, other):
            return tensor
        if 0.0 < share < 1.0 and _monotone(tensor):
            return tensor
        return restrided(
            tensor, lambda flat: (torch.rand(flat.shape, generator=generator) < share).to(flat.device)
        )

    return map_tensors(inputs, change)


def _tensors(inputs: list[Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []

    def seen(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    map_tensors(inputs, seen)
    return found


def _monotone(mask: torch.Tensor) -> bool:
    """Whether every row changes once at most, and all rows in the same direction."""
    steps = mask.int().diff(dim=-1) if mask.dim() else mask.int().reshape(1)
    return bool((steps >= 0).all()) or bool((steps <= 0).all())


def _free(tensor: torch.Tensor) -> bool:
    """Whether an element may be another, by what is seen of all of them."""
    if tensor.numel() < SHARE or any(s == 0 for s in tensor.stride()):
        return False
    values = tensor.reshape(-1)[:SEEN]
    distinct = torch.unique(values)
    steps = values[1:] >= values[:-1]
    permuted = len(distinct) == len(values) == int(distinct[-1] - distinct[0]) + 1
    return len(distinct) >= FEWEST and not permuted and not bool(steps.all()) and bool(steps.any())


def _put(tensor: torch.Tensor, known: Constants, sizes: set[int], lot: random.Random) -> torch.Tensor:
    made = restrided(tensor, torch.clone)
    low, high = int(tensor.min()), int(tensor.max())
    ends = [size - 1 for size in sizes if high < size <= 2 * high]
    ends += [0] if ends and 0 < 4 * low < high else []
    numbers = [int(s * v) for v in known.values if v == int(v) for s in (1, -1)]
    numbers += [bits for _, bits in known.patterns]
    inside = [v for v in dict.fromkeys(numbers) if low <= v <= high]
    lot.shuffle(inside)
    apart = differ_somehow(tensor)
    for value in (*ends, *inside[: max(1, tensor.numel() // SHARE)]):
        if apart and bool((made == value).any()):
            continue
        for place in (_place(tensor, lot) for _ in range(TRIES)):
            if value in ends or _within(tensor, place, value):
                made[place] = value
                break
    return made


def _place(tensor: torch.Tensor, lot: random.Random) -> tuple[int, ...]:
    return tuple(lot.randrange(size) for size in tensor.shape)


def _within(tensor: torch.Tensor, place: tuple[int, ...], value: int) -> bool:
    """Whether the lines of the tensor through ``place`` reach from below ``value`` to above it."""
    lines = [tensor[(*place[:dim], slice(None), *place[dim + 1 :])] for dim in range(tensor.dim())]
    long = [line for line in lines if line.numel() >= FEWEST]
    return bool(long) and all(int(line.min()) <= value <= int(line.max()) for line in long)
