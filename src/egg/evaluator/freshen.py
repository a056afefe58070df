"""Fresh values for every timed call, at the cost of a small copy.

A candidate that remembers answers would be fastest of all if timed calls repeated their
inputs. So before each call a block of every floating input (one part in 128) is overwritten
by another block of the same input: the values stay of the task's own kind, the answer
changes, and nobody can tell where without reading everything. The oracle makes the same
moves on its private copies, so it knows every answer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch

PART = 128

Move = list[int]
"""Which tensor, where to, where from, how many elements."""


def draw(tensors: Sequence[torch.Tensor], generator: random.Random) -> list[Move]:
    """One move for every input that can be changed: floating, all of its storage, at least two elements."""
    moves: list[Move] = []
    for index, tensor in enumerate(tensors):
        if changeable(tensor):
            count = max(1, tensor.numel() // PART)
            to, source = generator.sample(range(tensor.numel() // count), 2)
            moves.append([index, to * count, source * count, count])
    return moves


def changeable(tensor: torch.Tensor) -> bool:
    """Whether any move ever touches it."""
    return tensor.is_floating_point() and _whole(tensor) and tensor.numel() >= 2


def _whole(tensor: torch.Tensor) -> bool:
    """Whether nothing else looks at the same memory: views of one storage would move together."""
    size = tensor.numel() * tensor.element_size()
    return tensor.is_contiguous() and tensor.untyped_storage().nbytes() == size


@torch.no_grad()
def apply(tensors: Sequence[torch.Tensor], moves: list[Any]) -> None:
    """Make the moves, in place."""
    for index, to, source, count in moves:
        flat = tensors[index].view(-1)
        flat[to : to + count].copy_(flat[source : source + count])
