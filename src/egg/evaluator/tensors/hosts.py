"""Which tensors would lie in the host's memory if there were a GPU.

Without a GPU every tensor lies in the same memory, and a kernel that is given one which the file made on the
CPU (``torch.zeros(8)`` without a device) runs here and raises there. So such tensors are remembered, by
identity and for as long as they live.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

_HOST = WeakTensorKeyDictionary()


def on_host(tensor: Any) -> bool:
    return bool(len(_HOST)) and isinstance(tensor, torch.Tensor) and tensor in _HOST


def leave_on_host(tensor: torch.Tensor) -> None:
    _HOST[tensor] = True


def take_from_host(tensor: torch.Tensor) -> None:
    _HOST.pop(tensor, None)
