"""Other values for inputs that a task's generator never varies, within their kind.

A mask that is always true, lengths that are always full, positions that are always 0, 1, 2: a
kernel that never reads them is right whenever the generator is asked. They are inputs all the same.
What floats are drawn from is changed by :mod:`~egg.evaluator.task.distributions`; here are masks
and integers, of which not every value is legal. New values are taken from those that were seen,
sorted rows stay sorted and keep their ends, rows of a mask keep a true and a false element where
they had one.
"""

from __future__ import annotations

from typing import Any

import torch

from egg.evaluator.task.program import map_tensors


def can_vary(tensor: torch.Tensor) -> bool:
    """Whether there are other values of its kind: a mask, or integers other than zeros.

    Of ones a mask is made, which is what they mostly are; what may stand for a zero is unknown.
    """
    if tensor.is_floating_point() or tensor.is_complex() or not tensor.numel():
        return False
    if tensor.dtype is torch.bool:
        return True
    return int(tensor.min()) != int(tensor.max()) or int(tensor.max()) >= 1


def varied(inputs: list[Any], position: int, seed: int) -> list[Any]:
    """``inputs`` with other values of the tensor at ``position``, counted as they are packed."""
    at = iter(range(1 << 30))
    generator = torch.Generator().manual_seed(seed)

    def change(tensor: torch.Tensor) -> torch.Tensor:
        return other_values(tensor, generator) if next(at) == position else tensor

    return map_tensors(inputs, change)


def other_values(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Of the same kind, in the same layout: that of the tensor itself, since a copy of an expanded one on
    another device is not expanded."""
    given, strides = tensor.detach().cpu(), tensor.stride()
    made = _mask(given, generator) if given.dtype is torch.bool else _integers(given, generator)
    result = torch.empty_strided(given.shape, strides, dtype=given.dtype, device=tensor.device)
    if any(stride == 0 and size > 1 for size, stride in zip(given.shape, strides, strict=True)):
        first = tuple(
            slice(0, 1) if stride == 0 else slice(None) for stride in strides
        )  # an expanded tensor repeats what lies there once
        result[first].copy_(made[first])
    else:
        result.copy_(made)
    return result


def _mask(given: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    rows = given.reshape(-1, given.shape[-1]) if given.dim() else given.reshape(1, 1)
    density = 0.3 + 0.4 * float(torch.rand((), generator=generator))
    made = torch.rand(rows.shape, generator=generator) < density
    places = torch.randint(rows.shape[1], (2, rows.shape[0]), generator=generator)
    everywhere = torch.arange(rows.shape[0])
    if rows.shape[1] > 1 and bool((~rows).any(1).all()):
        made[everywhere, places[0]] = False
    if bool(rows.any(1).all()):
        made[everywhere, places[1]] = True
    return made.reshape(given.shape)


def _integers(given: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    low, high = int(given.min()), int(given.max())
    if low == high == 1:
        return _mask(given > 0, generator).to(given.dtype)
    if low == high:
        return torch.randint(1, high + 1, given.shape, generator=generator, dtype=given.dtype)
    rows = given.reshape(-1, given.shape[-1]) if given.dim() > 1 else given.reshape(1, -1)
    seen = rows.reshape(-1)
    if len(torch.unique(seen)) == seen.numel() and not _rising(rows):
        return seen[torch.randperm(seen.numel(), generator=generator)].reshape(given.shape)
    made = seen[torch.randint(seen.numel(), rows.shape, generator=generator)]
    if _rising(rows):
        made = made.sort(1).values
        made[:, 0], made[:, -1] = rows[:, 0], rows[:, -1]
        made = made.clamp(rows[:, :1], rows[:, -1:])
    return made.reshape(given.shape)


def _rising(rows: torch.Tensor) -> bool:
    return rows.shape[1] > 1 and bool((rows[:, 1:] >= rows[:, :-1]).all())
