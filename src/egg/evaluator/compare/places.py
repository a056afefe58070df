"""Where in a wrong output the errors lie.

How large an error is says what kind of fault it is; where it lies says which. A last column that no program
writes, every fourth row, one tile: each points at a mask, a stride or a program of the grid. An element is
wrong that is NaN or Inf where it must not be; where no element is, one that is off by more than a tenth of
the largest error. The wrong elements are counted along every dimension: a dimension singles something out
where only some of its indices hold any.

The output is read in pieces along its longest dimension, so that no more memory is taken than for a piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from egg.core.evaluation import WrongPlaces

PIECE = 1 << 22
"""Elements that are looked at at a time."""
LARGE = 0.1
"""Of the largest error."""
FEW = 6
"""Indices that are named one by one."""


def wrong_places(candidate: torch.Tensor, golden: torch.Tensor) -> WrongPlaces | None:
    """Where ``candidate`` is not ``golden``; ``None`` where nothing differs."""
    if candidate.is_complex() or golden.is_complex():
        candidate, golden = torch.view_as_real(candidate), torch.view_as_real(golden)
    largest = _largest(candidate, golden)
    if largest is None:
        return None
    shape = tuple(candidate.shape)
    counts = [torch.zeros(size, dtype=torch.int64, device=candidate.device) for size in shape]
    first: _First | None = None
    for offset, got, wanted in _pieces(candidate, golden):
        mask = _wrong(got, wanted, largest)
        _count(counts, mask, offset)
        if bool(mask.any()):
            found = _first(mask, got, wanted, offset)
            first = found if first is None else min(first, found, key=lambda one: one.index)
    assert first is not None
    total = int(counts[0].sum()) if counts else 1
    along = tuple(_along(dim, count) for dim, count in enumerate(counts))
    return WrongPlaces(
        shape=shape,
        wrong=total,
        of=candidate.numel(),
        first=first.index,
        got=first.got,
        expected=first.expected,
        along=tuple(words for words in along if words),
    )


@dataclass(frozen=True)
class _First:
    index: tuple[int, ...]
    got: float
    expected: float


def _pieces(
    one: torch.Tensor, other: torch.Tensor
) -> Iterator[tuple[tuple[int, int], torch.Tensor, torch.Tensor]]:
    """The dimension and the index at which a piece begins, and the piece of both, where the first lies."""
    if not one.dim():
        yield (0, 0), _exact(one, one), _exact(other, one)
        return
    dim = max(range(one.dim()), key=lambda at: one.shape[at])
    rows = max(1, PIECE * one.shape[dim] // max(one.numel(), 1))
    for start in range(0, one.shape[dim], rows):
        count = min(rows, one.shape[dim] - start)
        own = one.narrow(dim, start, count)
        yield (dim, start), _exact(own, own), _exact(other.narrow(dim, start, count), own)


def _exact(tensor: torch.Tensor, beside: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to(beside.device, torch.float64)


def _largest(candidate: torch.Tensor, golden: torch.Tensor) -> float | None:
    """The largest error of a finite element; infinity where an element is NaN or Inf that must not be,
    ``None`` where nothing differs."""
    largest = 0.0
    for _, got, wanted in _pieces(candidate, golden):
        if bool(_lost(got, wanted).any()):
            return float("inf")
        both = torch.isfinite(got) & torch.isfinite(wanted)
        if bool(both.any()):
            largest = max(largest, float((got - wanted)[both].abs().max()))
    return largest or None


def _lost(got: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """NaN or Inf where the exact result is none, or another one."""
    same = (got == wanted) | (torch.isnan(got) & torch.isnan(wanted))
    return ~same & ~(torch.isfinite(got) & torch.isfinite(wanted))


def _wrong(got: torch.Tensor, wanted: torch.Tensor, largest: float) -> torch.Tensor:
    if largest == float("inf"):
        return _lost(got, wanted)
    return (got - wanted).abs() > LARGE * largest


def _count(counts: Sequence[torch.Tensor], mask: torch.Tensor, offset: tuple[int, int]) -> None:
    dim, start = offset
    for at, count in enumerate(counts):
        others = [other for other in range(mask.dim()) if other != at]
        found = mask.sum(dim=others) if others else mask.long()
        begin = start if at == dim else 0
        count[begin : begin + len(found)] += found


def _first(mask: torch.Tensor, got: torch.Tensor, wanted: torch.Tensor, offset: tuple[int, int]) -> _First:
    local = tuple(int(i) for i in mask.nonzero()[0])
    dim, start = offset
    index = tuple(i + start if at == dim else i for at, i in enumerate(local))
    return _First(index, float(got[local]), float(wanted[local]))


def _along(dim: int, count: torch.Tensor) -> str:
    """What a dimension singles out, in words; empty where every index holds errors."""
    size = len(count)
    held = count.nonzero().flatten().tolist()
    if size <= 1 or len(held) == size:
        return ""
    where = f"dimension {dim} (size {size})"
    if held == [size - 1]:
        return f"{where}: only the last index"
    if held == [0]:
        return f"{where}: only the first index"
    steps = {b - a for a, b in pairwise(held)}
    if len(held) == 1 or steps == {1}:
        end = "to the end" if held[-1] == size - 1 else f"to {held[-1]}"
        block = f", {len(held)} indices" if len(held) > 1 else ""
        return f"{where}: only index {held[0]}" if len(held) == 1 else f"{where}: {held[0]} {end}{block}"
    if len(steps) == 1 and len(held) > 2:
        return f"{where}: every {steps.pop()}th index from {held[0]} to {held[-1]}"
    named = ", ".join(map(str, held[:FEW])) + (", ..." if len(held) > FEW else "")
    return f"{where}: {len(held)} indices: {named}"
