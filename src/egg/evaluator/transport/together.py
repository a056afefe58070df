"""Inputs and the storages that they are parts of: the halves of ``chunk``, q, k and v of one projection, the
tokens but for the last and those but for the first, a slice behind the first element.

A caller's inputs lie like that, so the candidate's do: what is written between the rows of one is then an
element of another, and what begins one element in is aligned to nothing. Such a group is one region of shared
memory, and the slot of each member spans all of it.

Where members have elements in common, values that are given to each alone would contradict one another. So
they come to them by whole draws of the generator (:func:`drawn_whole`), and where a question changes one of
them, the reference reads what is then in the memory too (:func:`joined`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch

from egg.evaluator.task.program import map_tensors
from egg.evaluator.transport import exchange
from egg.evaluator.transport.freshen import Kind, span

MOST_UNUSED = 4
"""How many times the members of a group their region may be: small parts of a large tensor are laid apart."""
NEAR = 1 << 18
"""Elements before a tensor in its storage that are laid in any case."""
FAR = 512
"""Elements before one that lies farther in, and the distance that keeps its alignment: PyTorch's allocator
aligns storages on a GPU to as many bytes."""


@dataclass(frozen=True)
class Group:
    """Tensors that one region holds: which they are, where each begins in it, and how large it is."""

    members: tuple[int, ...]
    leads: tuple[int, ...]
    """In elements, as the size is."""
    size: int
    shares: bool = False
    """Whether an element belongs to two of them."""


def groups(tensors: Sequence[torch.Tensor], kinds: Sequence[Kind] | None = None) -> Iterator[Group]:
    """The tensors that lie together, and those that begin behind the first element of their storage.

    ``kinds`` says how new values come to them before timed calls. Those that are given a whole draw are
    written from their first to their last element, with what lies between: members that interleave must all
    be of that kind.
    """
    for members in _by_storage(tensors):
        group = _group(tensors, members)
        if group is not None and (kinds is None or _movable(tensors, group, kinds)):
            yield group
            continue
        for at in members:
            if tensors[at].storage_offset():
                yield _region(tensors, [at])


def drawn_whole(tensors: Sequence[torch.Tensor], kinds: Sequence[Kind]) -> list[Kind]:
    """``kinds``, where tensors that have elements in common are given whole draws."""
    found = list(kinds)
    for members in _by_storage(tensors):
        group = _group(tensors, members)
        if group is not None and group.shares:
            found = [
                Kind.DRAWN if at in members and kind is Kind.LOOSE else kind for at, kind in enumerate(found)
            ]
    return found


@torch.no_grad()
def joined(inputs: list[Any], held: Iterable[Group]) -> list[Any]:
    """``inputs`` with the values that they have in the memory of their groups: an element that belongs to
    several is that of the last one."""
    shared = [group for group in held if group.shares]
    tensors = exchange.pack(inputs)[1] if shared else []
    changed = {at: tensor for group in shared for at, tensor in _laid(tensors, group).items()}
    if not changed:
        return inputs
    order = iter(range(len(tensors)))
    return map_tensors(inputs, lambda tensor: changed.get(next(order), tensor))


def _laid(tensors: Sequence[torch.Tensor], group: Group) -> dict[int, torch.Tensor]:
    """The members in one new region; none where they lie like that already."""
    parts = [tensors[at] for at in group.members]
    begins = {
        (part.untyped_storage().data_ptr(), int(part.storage_offset()) - lead)
        for part, lead in zip(parts, group.leads, strict=True)
    }
    if len(begins) == 1:
        return {}
    region = torch.empty(group.size, dtype=parts[0].dtype, device=parts[0].device)
    places = [
        region.as_strided(part.shape, part.stride(), lead)
        for part, lead in zip(parts, group.leads, strict=True)
    ]
    for place, part in zip(places, parts, strict=True):
        place.copy_(part)
    return {
        at: place.requires_grad_(part.requires_grad)
        for at, place, part in zip(group.members, places, parts, strict=True)
    }


def _by_storage(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """Those of one storage and one dtype; one that repeats elements is alone."""
    held: dict[tuple[int, torch.dtype, int], list[int]] = {}
    for at, tensor in enumerate(tensors):
        if tensor.layout is torch.strided and tensor.numel():
            alone = at if _repeats(tensor) else -1
            held.setdefault((tensor.untyped_storage().data_ptr(), tensor.dtype, alone), []).append(at)
    return list(held.values())


def _group(tensors: Sequence[torch.Tensor], members: Sequence[int]) -> Group | None:
    """Several members in one region, where it is not much larger than they are."""
    parts = [tensors[at] for at in members]
    first, end = _bounds(parts)
    if len(parts) == 1 or end - first > MOST_UNUSED * sum(part.numel() for part in parts):
        return None
    return _region(tensors, members)


def _region(tensors: Sequence[torch.Tensor], members: Sequence[int]) -> Group:
    parts = [tensors[at] for at in members]
    first, end = _bounds(parts)
    lead = _lead(first, end - first)
    leads = tuple(lead + int(part.storage_offset()) - first for part in parts)
    return Group(tuple(members), leads, lead + end - first, _shares(parts, end - first, first))


def _lead(offset: int, size: int) -> int:
    """How far into their region members of ``size`` elements begin: as far as in the task's own storage, but
    a small part of a large one keeps no more than its alignment."""
    return offset if offset <= MOST_UNUSED * size + NEAR else FAR + offset % FAR


def _movable(tensors: Sequence[torch.Tensor], group: Group, kinds: Sequence[Kind]) -> bool:
    """Whether new values come to the members of a group without harm to one another."""
    found = {kinds[at] for at in group.members}
    if group.shares:
        return Kind.LOOSE not in found
    return found == {Kind.DRAWN} or not _interleaved([tensors[at] for at in group.members])


def _bounds(tensors: Sequence[torch.Tensor]) -> tuple[int, int]:
    """From which to which element of their storage the tensors reach."""
    begins = [int(tensor.storage_offset()) for tensor in tensors]
    return min(begins), max(begin + span(tensor) for begin, tensor in zip(begins, tensors, strict=True))


def _shares(tensors: Sequence[torch.Tensor], size: int, first: int) -> bool:
    """Whether an element belongs to two of the tensors."""
    if len(tensors) == 1:
        return False
    taken = torch.zeros(size, dtype=torch.bool, device=tensors[0].device)
    for tensor in tensors:
        place = taken.as_strided(tensor.shape, tensor.stride(), int(tensor.storage_offset()) - first)
        if bool(place.any()):
            return True
        place.fill_(True)
    return False


def _interleaved(tensors: Sequence[torch.Tensor]) -> bool:
    reach = [_bounds([tensor]) for tensor in tensors]
    return any(max(a[0], b[0]) < min(a[1], b[1]) for a, b in combinations(reach, 2))


def _repeats(tensor: torch.Tensor) -> bool:
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
