"""Integers of which none comes twice along a dimension: they may be places to store at, each once.

PyTorch leaves open what is stored where two rows go to one place, and a kernel that stores both races. So
where an input is changed, such integers must go on to differ: an honest ``cache[positions] = rows`` is
judged by positions of which each comes once.
"""

from __future__ import annotations

import torch

SEEN = 1 << 16
"""Elements that are looked at."""
MOST_LINES = 1 << 12
"""Lines of a tensor that are given further values, one after the other."""


def is_whole(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool)


def differ(tensor: torch.Tensor, dim: int) -> bool:
    """Whether no value comes twice in a line along ``dim``."""
    if tensor.shape[dim] < 2:
        return False
    lines = tensor.movedim(dim, -1).reshape(-1, tensor.shape[dim])
    seen = lines[: max(1, SEEN // lines.shape[1])]
    return bool((seen.sort(-1).values.diff(dim=-1) != 0).all())


def differ_somehow(tensor: torch.Tensor) -> bool:
    return any(differ(tensor, dim) for dim in range(tensor.dim()))


def continued(tensor: torch.Tensor, dim: int, size: int) -> torch.Tensor | None:
    """``tensor`` with lines of ``size`` along ``dim``: each goes on with the least values that it has not.

    ``None`` where values come twice as it is, or where its type has not as many.
    """
    had = tensor.shape[dim]
    if not (is_whole(tensor) and had < size and tensor.numel() <= had * MOST_LINES and differ(tensor, dim)):
        return None
    low, lines = int(tensor.min()), tensor.movedim(dim, -1)
    if low + size > torch.iinfo(tensor.dtype).max:
        return None
    choice = torch.arange(low, low + size, dtype=torch.int64, device=tensor.device)
    further = [choice[~torch.isin(choice, line.long())][: size - had] for line in lines.reshape(-1, had)]
    added = torch.stack(further).to(tensor.dtype).reshape(*lines.shape[:-1], size - had)
    return torch.cat((lines, added), -1).movedim(-1, dim)
