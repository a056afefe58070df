"""Which memory would be the host's if there were a GPU.

Without a GPU every tensor lies in the same memory, and a kernel that is given one which the file made on the
CPU (``torch.zeros(8)`` without a device) runs here and raises there. So it is noted of every *storage* where
it would lie, for as long as it lives: views and parameters of a tensor lie where it does, and a tensor that
is given other memory (``parameter.data = moved``) lies there. Memory of which nothing is noted is the GPU's.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

_NOTED: dict[int, tuple[StorageWeakRef, bool]] = {}
"""By a storage's address: what keeps the address from being another's, and whether it is the host's."""
_SWEEP = 4096
"""Storages that are noted before those that are gone are forgotten."""
_UNDERWAY: list[tuple[weakref.ref[torch.Tensor], torch.Tensor]] = []


def on_host(tensor: Any) -> bool:
    found = _note_of(tensor)
    return found is not None and found[1]


def crosses(given: Sequence[torch.Tensor], made: torch.Tensor) -> bool:
    """Whether an operator brought values from a GPU, or from where one would be, to the host's memory."""
    if made.device.type != "cpu":
        return False
    if any(tensor.device.type != "cpu" for tensor in given):
        return True
    return on_host(made) and not all(map(on_host, given))


def known(tensor: torch.Tensor) -> bool:
    """Whether it was seen where its memory lies."""
    return _note_of(tensor) is not None


def leave_on_host(tensor: torch.Tensor) -> None:
    _note(tensor, True)


def take_from_host(tensor: torch.Tensor) -> None:
    _note(tensor, False)


def underway(tensor: torch.Tensor) -> None:
    """A copy to the host that nothing waits for holds anything until the device is waited for."""
    _UNDERWAY.append((weakref.ref(tensor), tensor.clone()))
    tensor.fill_(
        float("nan") if tensor.is_floating_point() else 85 if tensor.dtype is not torch.bool else True
    )


def arrive() -> None:
    """The device has completed all work that was queued on it."""
    while _UNDERWAY:
        there, values = _UNDERWAY.pop()
        tensor = there()
        if tensor is not None:
            tensor.copy_(values)


def _note_of(tensor: Any) -> tuple[StorageWeakRef, bool] | None:
    storage = _storage(tensor) if _NOTED else None
    return _NOTED.get(storage._cdata) if storage is not None else None


def _note(tensor: torch.Tensor, host: bool) -> None:
    storage = _storage(tensor)
    if storage is None:
        return
    if len(_NOTED) % _SWEEP == _SWEEP - 1:
        for key in [key for key, (there, _) in _NOTED.items() if there.expired()]:
            del _NOTED[key]
    _NOTED[storage._cdata] = (StorageWeakRef(storage), host)


def _storage(tensor: Any) -> torch.UntypedStorage | None:
    """Its memory; a sparse tensor and one that stands for others have none of their own."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return None
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None
