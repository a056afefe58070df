"""Which tensors would lie in the host's memory if there were a GPU.

Without a GPU every tensor lies in the same memory, and a kernel that is given one which the file made on the
CPU (``torch.zeros(8)`` without a device) runs here and raises there. So such tensors are remembered, by
identity and for as long as they live.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

_HOST = WeakTensorKeyDictionary()
_DEVICE = WeakTensorKeyDictionary()
_UNDERWAY: list[tuple[weakref.ref[torch.Tensor], torch.Tensor]] = []


def on_host(tensor: Any) -> bool:
    return bool(len(_HOST)) and isinstance(tensor, torch.Tensor) and tensor in _HOST


def on_device(tensor: torch.Tensor) -> bool:
    """Whether it was seen to be made on the GPU, or moved there."""
    return tensor in _DEVICE


def leave_on_host(tensor: torch.Tensor) -> None:
    _HOST[tensor] = True
    _DEVICE.pop(tensor, None)


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


def take_from_host(tensor: torch.Tensor) -> None:
    _DEVICE[tensor] = True
    _HOST.pop(tensor, None)
