"""Layouts: how the tensors of a call may lie in memory, otherwise than the task's own."""

from __future__ import annotations

import math
from enum import StrEnum

import torch

GAP = 3
"""Elements between two rows of a wider tensor: odd, so that rows begin on no boundary."""


class Form(StrEnum):
    """How a tensor lies in memory, otherwise than the task's own."""

    TRANSPOSED = "transposed"
    STRIDED = "every second element"
    OFFSET = "offset by one element"
    EXPANDED = "expanded"
    CHANNELS_LAST = "channels-last"
    ROWS = "rows of a wider tensor"
    SWAPPED = "its first two dimensions swapped"
    REPEATED = "expanded along the last dimension"


LEVELLING = (Form.EXPANDED, Form.REPEATED)
"""By which values along a dimension become the same one."""


def formed(tensor: torch.Tensor, forms: tuple[Form, ...]) -> torch.Tensor:
    """The same values in memory of another layout; what lies between them is NaN, or zero for integers."""
    if not forms:
        return tensor
    if Form.EXPANDED in forms:
        along = next(dim for dim, size in enumerate(tensor.shape) if size > 1)
        return tensor.narrow(along, 0, 1).contiguous().expand(tensor.shape)
    if Form.REPEATED in forms:
        return tensor.narrow(tensor.dim() - 1, 0, 1).contiguous().expand(tensor.shape)
    if Form.CHANNELS_LAST in forms:
        kind = torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d
        return tensor.contiguous(memory_format=kind)
    order = list(range(tensor.dim()))
    if Form.TRANSPOSED in forms:
        order[-2:] = order[-1], order[-2]
    if Form.SWAPPED in forms:
        order[0], order[1] = order[1], order[0]
    return _laid(tensor, order, forms)


def _laid(tensor: torch.Tensor, order: list[int], forms: tuple[Form, ...]) -> torch.Tensor:
    """With its dimensions in ``order`` in memory."""
    lead = int(Form.OFFSET in forms)
    step = 2 if Form.STRIDED in forms else 1
    stored = [tensor.shape[dim] for dim in order]
    within = stored[-1] * step
    stored[-1] = within + (GAP if Form.ROWS in forms else 0)
    fill = math.nan if tensor.is_floating_point() else 0
    memory = torch.full((lead + math.prod(stored),), fill, dtype=tensor.dtype, device=tensor.device)
    back = [order.index(dim) for dim in range(tensor.dim())]
    view = memory[lead:].view(stored)[..., :within:step].permute(back)
    view.copy_(tensor)
    return view


def fitting(form: Form, tensor: torch.Tensor) -> bool:
    """Whether a tensor can lie like that, and otherwise than it does."""
    match form:
        case Form.TRANSPOSED:
            return tensor.dim() >= 2 and min(tensor.shape[-2:]) > 1
        case Form.SWAPPED:
            return tensor.dim() >= 3 and min(tensor.shape[:2]) > 1
        case Form.ROWS:
            return tensor.dim() >= 2 and tensor.shape[-2] > 1
        case Form.CHANNELS_LAST:
            return tensor.dim() in (4, 5) and tensor.shape[1] > 1
        case Form.EXPANDED:
            return any(size > 1 for size in tensor.shape) and tensor.is_floating_point()
        case Form.REPEATED:
            return tensor.dim() >= 2 and tensor.shape[-1] > 1 and tensor.is_floating_point()
        case Form.STRIDED:
            return tensor.dim() >= 1 and tensor.shape[-1] > 1
        case Form.OFFSET:
            return tensor.dim() >= 1 and tensor.numel() > 0
