"""What a module holds, read from the module itself and not through its methods.

``state_dict``, ``named_parameters`` and their like can be overridden: a file could bring its state up to date
when it is asked for it, and leave it behind on every other call. So parameters and buffers are read where
``nn.Module`` keeps them. There must lie what ``nn.Module`` puts there: a file's own object in such a place
would see that it is looked at, and could show other tensors than it uses.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from egg.evaluator.restrict.names import RestrictedError

_vars, _type = vars, type
DICTIONARIES = (dict, OrderedDict)
HELD = {"_parameters": torch.Tensor, "_buffers": torch.Tensor, "_modules": nn.Module}
"""What a value is that is not ``None``."""
HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
"""Where ``nn.Module`` keeps what others are to call."""


def kept_by(part: nn.Module) -> dict[str, Any]:
    """The attributes of a module, of which those that ``nn.Module`` made are what it makes.

    Nothing that the file defines runs meanwhile: types are compared by identity, and names are plain strings.
    """
    held = _vars(part)
    for slot, wanted in HELD.items():
        found: Any = held.get(slot)
        if _type(found) not in DICTIONARIES:
            raise _foreign(slot, found)
        for name, value in found.items():
            if _type(name) is not str or not (value is None or issubclass(_type(value), wanted)):
                raise _foreign(f"{slot}[...]", name if _type(name) is not str else value)
    for slot in HOOKS:
        if _type(held.get(slot)) not in (*DICTIONARIES, _type(None)):
            raise _foreign(slot, held[slot])
    if _type(held.get("training")) is not bool:
        raise _foreign("training", held.get("training"))
    left_out = held.get("_non_persistent_buffers_set")
    if _type(left_out) is not set or any(_type(name) is not str for name in left_out):
        raise _foreign("_non_persistent_buffers_set", left_out)
    return held


def _foreign(slot: str, value: object) -> RestrictedError:
    return RestrictedError(
        f"a module's {slot} is a {_type(value).__name__}, which nn.Module did not put there",
        "restricted.patch",
    )


def parts_of(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The module and all modules in it, each with the beginning of its names."""
    yield prefix, module
    for name, child in kept_by(module)["_modules"].items():
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
        held = kept_by(part)
        left_out = held["_non_persistent_buffers_set"] if persistent else ()
        for name, tensor in (*held["_parameters"].items(), *held["_buffers"].items()):
            if tensor is not None and name not in left_out:
                found[prefix + name] = tensor.detach()
    return found
