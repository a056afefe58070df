"""The structure of an output, in words: which containers, and which kinds of numbers, a caller finds.

Leaves are named by their place, and a dictionary with the keys "0" and "1" has the leaves of a pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from egg.core.errors import TaskError

NUMBERS = (bool, int, float, complex)


def structure_of(value: Any) -> str:
    """``tuple(tensor, int)``. A tuple with names is a tuple, and any mapping a dictionary: a file cannot make
    an object of a class that it may not import."""
    if isinstance(value, torch.Tensor):
        return "tensor"
    if isinstance(value, Mapping):
        return f"dict({', '.join(f'{key}: {structure_of(item)}' for key, item in value.items())})"
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return f"{kind}({', '.join(map(structure_of, value))})"
    return next((kind.__name__ for kind in NUMBERS if isinstance(value, kind)), type(value).__name__)


def plain(value: Any) -> Any:
    """A result in which every tensor is plain, every number Python's own, and every container a built-in one.

    The judge computes with them: a class of the task's own could answer for the difference of two tensors,
    and an input that is handed back may require a gradient.
    """
    if isinstance(value, torch.Tensor):
        return plain_tensor(value).detach() if value.requires_grad else plain_tensor(value)
    if isinstance(value, bool | int | float | complex):
        return _number(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return (list if isinstance(value, list) else tuple)(map(plain, value))
    return value


def _number(value: Any) -> bool | int | float | complex:
    if isinstance(value, bool):
        return value
    return (
        int(value) if isinstance(value, int) else float(value) if isinstance(value, float) else complex(value)
    )


def plain_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A parameter is one, too; another class of tensors is refused."""
    kind = type(tensor)
    if kind is torch.Tensor or kind is nn.Parameter:
        return tensor
    raise TaskError(
        f"the task has a tensor of class {kind.__qualname__}: the judge compares plain tensors",
        "make inputs, and return results, of the class torch.Tensor: tensor.as_subclass(torch.Tensor)",
    )
