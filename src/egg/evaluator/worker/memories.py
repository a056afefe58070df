"""The memory behind every tensor that is alive in a candidate's process.

Tensors are found where Python's collector keeps them, wherever a file put them: on its module, in a global, a
closure, a dictionary. Of a sparse one the memories of its values and indices count. Of memory in which a
weight lies only the weight's own elements are spared: a file may lay it into a larger storage.

What is too large to be copied is noted by a digest of every page of it.
"""

from __future__ import annotations

import gc
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

KINDS = (torch.Tensor, nn.Parameter, nn.Buffer)
ROWS, COLUMNS = (torch.sparse_csr, torch.sparse_bsr), (torch.sparse_csc, torch.sparse_bsc)
PAGE = 4096
"""Bytes for which there is one digest."""
PIECE = 16 << 20
"""Bytes that are digested at a time."""
FACTORS = torch.tensor([secrets.randbits(63) - (1 << 62) | 1 for _ in range(PAGE // 8)])
"""One for each word of a page, drawn for each process."""


@dataclass(frozen=True)
class Spared:
    """What is not looked at: the judge's own memory, by address, and weights and attributes of the module,
    which it compares."""

    addresses: frozenset[int]
    weights: tuple[torch.Tensor, ...] = ()


@dataclass(frozen=True)
class Memory:
    """One storage as a row of bytes, and which of them are looked at; ``None``: all."""

    row: torch.Tensor
    free: torch.Tensor | None = None

    @property
    def size(self) -> int:
        return self.row.numel()

    def copy(self) -> torch.Tensor:
        """With zeros for what is spared."""
        return self.row.clone() if self.free is None else self.row * self.free

    def write(self, values: torch.Tensor) -> None:
        self.row.copy_(values if self.free is None else torch.where(self.free, values, self.row))

    def digests(self) -> torch.Tensor:
        """Of every page: the sum of its words, each times a factor that was drawn.

        Who does not know the factors finds no two contents of one digest. What is spared counts as zeros, and
        so does what the last page lacks.
        """
        factors = FACTORS.to(self.row.device)
        found = []
        for start in range(0, self.size, PIECE):
            piece = self.row[start : start + PIECE]
            piece = piece if self.free is None else piece * self.free[start : start + PIECE]
            whole = nn.functional.pad(piece, (0, -piece.numel() % PAGE))
            found.append((whole.view(torch.int64).view(-1, PAGE // 8) * factors).sum(dim=1))
        return torch.cat(found)


def memories(spared: Spared) -> Iterator[tuple[int, Memory]]:
    """Every memory behind a live tensor, once, by its address."""
    seen, weights = set(spared.addresses), _by_storage(spared.weights)
    for part in _parts():
        storage = part.untyped_storage()
        at, size = storage.data_ptr(), storage.nbytes()
        if not at or at in seen:
            continue
        seen.add(at)
        raw: Any = torch.empty(0, dtype=torch.uint8, device=part.device)
        row, own = raw.set_(storage, 0, (size,)), weights.get(at, [])
        if not any(weight.is_contiguous() and weight.nbytes == size for weight in own):
            yield at, Memory(row, _beside(row, own) if own else None)


def by_page(marked: torch.Tensor, size: int) -> torch.Tensor:
    """For every byte the mark of its page."""
    return marked[:, None].expand(-1, PAGE).reshape(-1)[:size]


def _parts() -> Iterator[torch.Tensor]:
    """Live tensors that have a memory; for a sparse one those that it consists of."""
    for found in gc.get_objects():
        if type(found) not in KINDS or found.device.type == "meta":
            continue
        if found.layout is torch.strided:
            yield found
        elif found.layout is torch.sparse_coo:
            yield from (found._values(), found._indices())
        elif found.layout in ROWS:
            yield from (found.values(), found.crow_indices(), found.col_indices())
        elif found.layout in COLUMNS:
            yield from (found.values(), found.ccol_indices(), found.row_indices())


def _by_storage(weights: Sequence[torch.Tensor]) -> dict[int, list[torch.Tensor]]:
    found: dict[int, list[torch.Tensor]] = {}
    for weight in weights:
        found.setdefault(weight.untyped_storage().data_ptr(), []).append(weight)
    return found


def _beside(row: torch.Tensor, weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """Of each byte of a storage, whether no element of ``weights`` lies there."""
    free = torch.ones_like(row, dtype=torch.bool)
    for weight in weights:
        size = weight.element_size()
        steps = (*(stride * size for stride in weight.stride()), 1)
        torch.as_strided(free, (*weight.shape, size), steps, weight.storage_offset() * size).fill_(False)
    return free
