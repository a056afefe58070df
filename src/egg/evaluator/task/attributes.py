"""Plain attributes of a module: what is neither a parameter nor a buffer, and a caller may read all the same.

A mixture of experts leaves the load of its last call in ``self.load``; a loss reads it there. They are read
where Python keeps them, and not by ``getattr``, which a file can override.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

MOST = 4096
"""Elements of a tensor that are looked at."""
_vars = vars
Shown = tuple[tuple[int, ...] | None, tuple[float, ...]]
"""The shape of a tensor, and its first elements; no shape, and one number."""


def attributes_of(module: nn.Module) -> dict[str, Any]:
    """Public attributes of the module itself that are numbers or tensors, or nothing yet."""
    return {
        name: value
        for name, value in _vars(module).items()
        if not name.startswith("_") and name != "training" and (value is None or _plain(value))
    }


def _plain(value: Any) -> bool:
    return isinstance(value, bool | int | float) or type(value) is torch.Tensor


def shown(value: Any) -> Shown | None:
    if value is None or not _plain(value):
        return None
    if isinstance(value, torch.Tensor):
        if value.is_complex() or value.layout != torch.strided:
            return None
        return tuple(value.shape), tuple(value.detach().reshape(-1)[:MOST].double().tolist())
    return None, (float(value),)


def written(before: dict[str, Any], after: dict[str, Any]) -> tuple[str, ...]:
    """Attributes that hold another tensor now, or another number."""
    return tuple(
        name for name, value in after.items() if value is not None and _other(before.get(name), value)
    )


def _other(before: Any, value: Any) -> bool:
    if isinstance(value, torch.Tensor) or isinstance(before, torch.Tensor):
        return before is not value
    return before != value
