"""Inputs that are parts of one storage: the halves of ``chunk``, or q, k and v of one projection.

A caller's inputs lie like that, so the candidate's do: what is written between the rows of one is then an
element of another. Such a group is one region of shared memory, and the slot of each member spans all of it.
Tensors that have elements in common are laid apart, because values are given to each of them alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch

from egg.evaluator.transport.freshen import Kind, span

MOST_UNUSED = 4
"""How many times the members of a group their region may be: small parts of a large tensor are laid apart."""


@dataclass(frozen=True)
class Group:
    """Tensors that one region holds: which they are, where each begins in it, and how large it is."""

    members: tuple[int, ...]
    leads: tuple[int, ...]
    """In elements, as the size is."""
    size: int


def groups(tensors: Sequence[torch.Tensor], kinds: Sequence[Kind] | None = None) -> Iterator[Group]:
    """The tensors that lie together.

    ``kinds`` says how new values come to them before timed calls. Those that are given a whole draw are
    written from their first to their last element, with what lies between: members that interleave must all
    be of that kind.
    """
    held: dict[tuple[int, torch.dtype], list[int]] = {}
    for at, tensor in enumerate(tensors):
        if tensor.layout is torch.strided and tensor.numel() and not _repeats(tensor):
            held.setdefault((tensor.untyped_storage().data_ptr(), tensor.dtype), []).append(at)
    for members in held.values():
        parts = [tensors[at] for at in members]
        if len(members) == 1 or not _fits(parts):
            continue
        if kinds is None or all(kinds[at] is Kind.DRAWN for at in members) or not _interleaved(parts):
            first, end = _bounds(parts)
            leads = tuple(int(part.storage_offset()) - first for part in parts)
            yield Group(tuple(members), leads, end - first)


def _bounds(tensors: Sequence[torch.Tensor]) -> tuple[int, int]:
    """From which to which element of their storage the tensors reach."""
    begins = [int(tensor.storage_offset()) for tensor in tensors]
    return min(begins), max(begin + span(tensor) for begin, tensor in zip(begins, tensors, strict=True))


def _apart(tensors: Sequence[torch.Tensor], size: int, first: int) -> bool:
    """Whether no element belongs to two of the tensors."""
    taken = torch.zeros(size, dtype=torch.bool, device=tensors[0].device)
    for tensor in tensors:
        place = taken.as_strided(tensor.shape, tensor.stride(), int(tensor.storage_offset()) - first)
        if bool(place.any()):
            return False
        place.fill_(True)
    return True


def _fits(tensors: Sequence[torch.Tensor]) -> bool:
    first, end = _bounds(tensors)
    if end - first > MOST_UNUSED * sum(tensor.numel() for tensor in tensors):
        return False
    return _apart(tensors, end - first, first)


def _interleaved(tensors: Sequence[torch.Tensor]) -> bool:
    reach = [_bounds([tensor]) for tensor in tensors]
    return any(max(a[0], b[0]) < min(a[1], b[1]) for a, b in combinations(reach, 2))


def _repeats(tensor: torch.Tensor) -> bool:
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
