"""What a module holds, read from the module itself and not through its methods.

``state_dict``, ``named_parameters`` and their like can be overridden: a file could bring its state up to date
when it is asked for it, and leave it behind on every other call. So parameters and buffers are read where
``nn.Module`` keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

_vars = vars


def parts_of(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The module and all modules in it, each with the beginning of its names."""
    yield prefix, module
    for name, child in _vars(module)["_modules"].items():
        if child is not None:
            yield from parts_of(child, f"{prefix}{name}.")


def parameters_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """By name, each once, as ``named_parameters`` gives them."""
    found: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for prefix, part in parts_of(module):
        for name, tensor in _vars(part)["_parameters"].items():
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                found[prefix + name] = tensor
    return found


def state_of(module: nn.Module, *, persistent: bool = True) -> dict[str, torch.Tensor]:
    """Parameters and buffers under the names and in the order of ``state_dict``; or all of the buffers."""
    found: dict[str, torch.Tensor] = {}
    for prefix, part in parts_of(module):
        held = _vars(part)
        left_out = held["_non_persistent_buffers_set"] if persistent else ()
        for name, tensor in (*held["_parameters"].items(), *held["_buffers"].items()):
            if tensor is not None and name not in left_out:
                found[prefix + name] = tensor.detach()
    return found
