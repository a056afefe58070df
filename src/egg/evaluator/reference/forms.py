"""Layouts: how the tensors of a call may lie in memory, otherwise than the task's own."""

from __future__ import annotations

import math
from enum import StrEnum

import torch

GAP = 3
"""Elements between two rows of a wider tensor: odd, so that rows begin on no boundary."""

ALIGNED = 64
"""Elements: what begins at a multiple of them is aligned to every width of a load."""


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
    INNERMOST = "its first dimension innermost"
    """A cycle of three dimensions or more: unlike an exchange of two, it is not its own inverse."""
    OUTERMOST = "its last dimension outermost"
    LATER = "a later part of a larger tensor"
    WINDOWS = "windows that overlap"


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
    if Form.WINDOWS in forms:
        return _windows(tensor)
    if Form.CHANNELS_LAST in forms:
        kind = torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d
        return tensor.contiguous(memory_format=kind)
    order = list(range(tensor.dim()))
    if Form.TRANSPOSED in forms:
        order[-2:] = order[-1], order[-2]
    if Form.SWAPPED in forms:
        order[0], order[1] = order[1], order[0]
    if Form.INNERMOST in forms:
        order = [*order[1:], order[0]]
    if Form.OUTERMOST in forms:
        order = [order[-1], *order[:-1]]
    return _laid(tensor, order, forms)


def _laid(tensor: torch.Tensor, order: list[int], forms: tuple[Form, ...]) -> torch.Tensor:
    """With its dimensions in ``order`` in memory."""
    lead = int(Form.OFFSET in forms) + (later(tensor.numel()) if Form.LATER in forms else 0)
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


def later(elements: int) -> int:
    """Where the second of two such parts begins in a tensor that holds both, on a boundary of 64 elements."""
    return -(-elements // ALIGNED) * ALIGNED


def _windows(tensor: torch.Tensor) -> torch.Tensor:
    """Rows that share elements of memory, as those of ``unfold``; the values are those of the first rows.

    Where the sizes permit, such a view reaches exactly as far as a dense one, so that a test of its extent
    takes it for one: with g the greatest common divisor of R - 1 and C - 1, strides of C - (C - 1) / g and
    1 + (R - 1) / g end at the last of R * C elements.
    """
    rows, cols = tensor.shape[-2:]
    common = math.gcd(rows - 1, cols - 1)
    row, col = cols - (cols - 1) // common, 1 + (rows - 1) // common
    if common == 1:
        row, col = -(-cols // 2), 1
    outer = tensor.contiguous().stride()[:-2]
    return tensor.contiguous().as_strided(tensor.shape, (*outer, row, col))


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
        case Form.INNERMOST | Form.OUTERMOST:
            return tensor.dim() >= 3 and sum(size > 1 for size in tensor.shape) >= 3
        case Form.WINDOWS:
            return tensor.dim() >= 2 and min(tensor.shape[-2:]) > 1 and tensor.is_floating_point()
        case Form.LATER:
            return tensor.dim() >= 1 and tensor.numel() > 0
        case Form.STRIDED:
            return tensor.dim() >= 1 and tensor.shape[-1] > 1
        case Form.OFFSET:
            return tensor.dim() >= 1 and tensor.numel() > 0
