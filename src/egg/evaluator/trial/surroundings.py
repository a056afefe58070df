"""What lies around inputs in their own storages: between rows, and before the first element.

That memory is the caller's. It holds a secret pattern, which a candidate must find and leave as it is: a
kernel that uses it for intermediate results is right in a process of its own and destroys data in any other.
On a GPU the same bytes go to the candidate's memory and back, so one comparison serves both.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch

from egg.evaluator.transport.slots import Slot

_BLOCK = 8191
"""Bytes of the pattern, which repeats; a prime, so that no row length divides it."""

View = Callable[[Slot], torch.Tensor]


class Surroundings:
    """The bytes of a set of slots that belong to no input, as they were laid."""

    def __init__(self, view: View, device: torch.device) -> None:
        self._view = view
        block = torch.frombuffer(bytearray(secrets.token_bytes(_BLOCK)), dtype=torch.uint8)
        self._block = block.to(device)
        self._laid: dict[int, torch.Tensor] = {}

    def fill(self, slots: Sequence[Slot]) -> None:
        """Lay the pattern over whole regions; the values of the inputs come behind it.

        It begins anew with each region: a whole draw that is copied from one to another brings the same.
        """
        for members in with_gaps(slots):
            raw = self._view(whole(members[0]))
            raw.copy_(self._block.repeat(-(-len(raw) // _BLOCK))[: len(raw)])

    def note(self, slots: Sequence[Slot]) -> None:
        """Keep what now lies in the regions."""
        for members in with_gaps(slots):
            self._laid[members[0].offset] = self._view(whole(members[0])).clone()

    def changed(self, slots: Sequence[Slot]) -> bool:
        """Whether a byte outside the inputs is another than the one that was noted."""
        for members in with_gaps(slots):
            noted = self._laid.get(members[0].offset)
            if noted is None:
                continue
            outside = ~_taken(members, noted.device)
            other = (self._view(whole(members[0])) != noted).view(len(outside), -1).any(1)
            if bool((other & outside).any()):
                return True
        return False


def with_gaps(slots: Iterable[Slot]) -> list[list[Slot]]:
    """Slots by the region that they lie in, of regions that may hold more than the elements of these."""
    regions: dict[int, list[Slot]] = {}
    for slot in slots:
        if slot.nbytes:
            regions.setdefault(slot.offset, []).append(slot)
    return [members for members in regions.values() if not any(map(_dense, members))]


def _dense(slot: Slot) -> bool:
    """Whether the elements of a slot are all of its region, each once and in some order of dimensions."""
    reach = 1
    for stride, size in sorted((d, n) for n, d in zip(slot.shape, slot.stride, strict=True) if n > 1):
        if stride != reach:
            return False
        reach *= size
    return reach * getattr(torch, slot.dtype).itemsize == slot.nbytes


def _taken(members: Sequence[Slot], device: torch.device) -> torch.Tensor:
    """Which elements of a region belong to one of its tensors."""
    size = members[0].nbytes // getattr(torch, members[0].dtype).itemsize
    taken = torch.zeros(size, dtype=torch.bool, device=device)
    for slot in members:
        once = [1 if stride == 0 else n for n, stride in zip(slot.shape, slot.stride, strict=True)]
        taken.as_strided(once, slot.stride, slot.lead).fill_(True)
    return taken


def whole(slot: Slot, dtype: str = "uint8") -> Slot:
    """All memory of a slot's region in a row, as bytes or as elements of another type."""
    return replace(
        slot, shape=(slot.nbytes // getattr(torch, dtype).itemsize,), stride=(1,), dtype=dtype, lead=0
    )
