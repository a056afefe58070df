"""Some elements of an output, where others have no answer: one after another, and where they stand.

At a size at which only some programs of a launch are run, what they wrote is all that there is. Errors are
counted among these elements alone: beside values of another origin a few that are wrong would be a small
share, and a small part of the rms.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Part:
    """Of an output of ``shape`` the elements ``at`` these numbers, which ascend."""

    shape: torch.Size
    at: torch.Tensor

    @classmethod
    def marked(cls, marks: torch.Tensor, most: int) -> Part | None:
        """Those where ``marks`` are true, or ``most`` of them by lot; ``None`` where they are all."""
        at = marks.reshape(-1).nonzero().reshape(-1)
        if len(at) == marks.numel() <= most:
            return None
        if len(at) > most:
            at = at[torch.randint(len(at), (most,), generator=_lot())].unique()
        return cls(marks.shape, at)

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """These elements of a tensor of that shape."""
        return tensor.reshape(-1)[self.at]

    def in_pairs(self) -> Part:
        """The same where each element is two real numbers."""
        pairs = 2 * self.at[:, None] + torch.arange(2, device=self.at.device)
        return Part(torch.Size((*self.shape, 2)), pairs.reshape(-1))

    def slices(
        self, tensors: Sequence[torch.Tensor], kept: Sequence[int], fewest: int, most: tuple[int, int]
    ) -> list[torch.Tensor]:
        """Elements as rows, one for each slice that the dimensions ``kept`` number: the ``tensors`` hold
        these elements alone. Slices of ``fewest`` or more, at ``most`` so many by lot and so many elements of
        each; a row is filled up with NaN."""
        where = torch.unravel_index(self.at, self.shape)
        numbers = torch.zeros_like(self.at)
        for dim in kept:
            numbers = numbers * self.shape[dim] + where[dim]
        _, which, counts = torch.unique(numbers, return_inverse=True, return_counts=True)
        long = (counts >= fewest).nonzero().reshape(-1)
        drawn = long[_order(len(long))[: most[0]].to(long.device)]
        row_of = torch.full_like(counts, -1)
        row_of[drawn] = torch.arange(len(drawn), device=drawn.device)
        places = _order(len(which)).to(which.device)
        places = places[row_of[which[places]] >= 0]
        places = places[row_of[which[places]].argsort(stable=True)]
        rows = row_of[which[places]]
        lengths = torch.bincount(rows, minlength=len(drawn))
        columns = torch.arange(len(rows), device=rows.device) - (lengths.cumsum(0) - lengths)[rows]
        near = columns < most[1]
        rows, columns, places = rows[near], columns[near], places[near]
        width = min(int(lengths.max()), most[1]) if len(drawn) else 0
        found = []
        for tensor in tensors:
            made = torch.full((len(drawn), width), float("nan"), dtype=torch.float64, device=tensor.device)
            made[rows, columns] = tensor.reshape(-1)[places].double()
            found.append(made)
        return found


def _order(count: int) -> torch.Tensor:
    return torch.randperm(count, generator=_lot())


def _lot() -> torch.Generator:
    return torch.Generator().manual_seed(secrets.randbits(48))
