"""The tensors a candidate is called with.

On a GPU they lie in memory of the candidate's own process, filled from the oracle's arena
before each command and copied back behind it. Memory that another process owns, opened
through CUDA IPC, is read 15% to 45% more slowly once the inputs in use reach about a gigabyte
(measured on an H200), and the reference, which reads its own, would win by that much.

On a CPU the arena itself is as near as any other memory.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from egg.evaluator.transport.arena import Arena, Slot, device_view

NEAR_BYTES = 256 << 20
"""A further copy of larger tensors is not worth its memory."""


class Inputs:
    """One tensor object per slot for the life of the process, as a caller would hold it."""

    def __init__(self, arena: Arena, device: torch.device) -> None:
        self._arena = arena
        self._device = device
        self._held: dict[Slot, torch.Tensor] = {}

    def fetch(self, slot: Slot) -> torch.Tensor:
        """The candidate's tensor for ``slot``, with the values the oracle laid there."""
        if slot not in self._held:
            made = self._arena.view(slot) if self._shared(slot) else self._made(slot)
            self._held[slot] = made.requires_grad_(slot.learns)
        if not self._shared(slot):
            _bytes(self.alias(slot), slot).copy_(_bytes(self._arena.view(slot), slot))
        return self._held[slot]

    def _made(self, slot: Slot) -> torch.Tensor:
        """Memory of the process's own; two slots of the same bytes look at the same memory here as well."""
        same = (held for held in self._held if (held.offset, held.nbytes) == (slot.offset, slot.nbytes))
        holder = next((held for held in same if held.dtype == slot.dtype), None)
        if holder is None:
            return _like(slot, self._device)
        return self._held[holder].detach().as_strided(slot.shape, slot.stride, slot.lead)

    def alias(self, slot: Slot) -> torch.Tensor:
        """The same memory as another tensor, whose version counter the candidate's does not share."""
        if self._shared(slot):
            return self._arena.view(slot)
        return device_view(self._held[slot].untyped_storage().data_ptr(), slot, self._device)

    def elsewhere(self, slots: Iterable[Slot]) -> list[torch.Tensor]:
        """What the candidate's tensors hold, in memory that was just taken; parts of one region stay that."""
        regions: dict[int, torch.Tensor] = {}
        found = []
        for slot in slots:
            if slot.offset not in regions:
                regions[slot.offset] = _bytes(self.alias(slot), slot).clone()
            made = regions[slot.offset].as_strided(slot.shape, slot.stride, slot.lead)
            found.append(made.requires_grad_(slot.learns))
        return found

    def refill(self, slots: Iterable[Slot], times: int) -> None:
        """Count so many writes in the versions of the candidate's tensors."""
        for slot in slots:
            for _ in range(times):
                torch.autograd.graph.increment_version(self._held[slot])

    def near(self, slot: Slot) -> torch.Tensor:
        """For values that calls are given in turn: as near as the inputs, unless that takes much memory."""
        return self.fetch(slot) if slot.nbytes <= NEAR_BYTES else self._arena.view(slot)

    def give_back(self, slots: Iterable[Slot]) -> None:
        """Let the oracle see what became of the inputs."""
        for slot in slots:
            if not self._shared(slot):
                _bytes(self._arena.view(slot), slot).copy_(_bytes(self.alias(slot), slot))

    @property
    def held(self) -> list[torch.Tensor]:
        """Tensors that a candidate was given, the earliest first, as far as they take little memory."""
        found, room = [], NEAR_BYTES
        for slot, tensor in self._held.items():
            if tensor.layout is torch.strided and slot.nbytes <= room:
                found.append(tensor)
                room -= slot.nbytes
        return found

    @property
    def addresses(self) -> set[int]:
        """Of the memory behind all tensors that a candidate was given."""
        return {tensor.untyped_storage().data_ptr() for tensor in self._held.values()}

    def _shared(self, slot: Slot) -> bool:
        return self._device.type != "cuda" or slot.nbytes == 0


def _like(slot: Slot, device: torch.device) -> torch.Tensor:
    """Uninitialised memory laid out as the slot says."""
    dtype = getattr(torch, slot.dtype)
    raw = torch.empty(slot.nbytes // dtype.itemsize, dtype=dtype, device=device)
    return raw.as_strided(slot.shape, slot.stride, slot.lead)


def _bytes(tensor: torch.Tensor, slot: Slot) -> torch.Tensor:
    """All memory of a slot's tensor in a row, whatever its strides."""
    return tensor.as_strided((slot.nbytes // tensor.element_size(),), (1,), 0)
