"""Tensors of the original in the place of a model's own, by name.

A printed ``Model`` and the ``ModelNew`` of its kernel file are built on the meta device, where a weight takes
no memory, and then hold the original's tensors themselves: no copy, and nothing to keep in step.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from egg.core.errors import KernelFileError
from egg.modules.capture_types import Captured


def tensors_of(captured: Captured, module: nn.Module) -> dict[str, torch.Tensor]:
    """By attribute of the task's ``Model`` the original's tensors as they are now.

    ``KeyError`` where the original has none under that name any more.
    """
    found: dict[str, torch.Tensor] = {}
    for binding in captured.bindings:
        if binding.role == "constant":
            found[binding.attribute] = captured.constants[binding.attribute]
            continue
        owner, name = owner_of(module, binding.path)
        tensor = owner.get(name)
        if tensor is None:
            raise KeyError(binding.path)
        found[binding.attribute] = tensor
    return {**captured.constants, **found}


def owner_of(module: nn.Module, path: str) -> tuple[dict[str, Any], str]:
    """The dictionary of the module that holds a tensor, and its key."""
    where, _, name = path.rpartition(".")
    part = module.get_submodule(where)
    return (part._parameters if name in part._parameters else part._buffers), name


def built(make: Callable[[], nn.Module], tensors: Mapping[str, torch.Tensor]) -> nn.Module:
    """A model that holds ``tensors`` and no other; made on the meta device where that suffices."""
    with torch.device("meta"):
        model = make()
    fill(model, tensors)
    if any(t.is_meta for t in (*model.parameters(), *model.buffers(), *_plain(model))):
        model = make()
        device = next((t.device for t in tensors.values()), torch.device("cpu"))
        model = model.to(device)
        fill(model, tensors)
    return model


def fill(model: nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    for name, tensor in tensors.items():
        if name in model._parameters:
            model._parameters[name] = tensor  # type: ignore[assignment]
        elif name in model._buffers:
            model._buffers[name] = tensor
        else:
            raise KernelFileError(
                f"the kernel file's ModelNew holds no {name!r}",
                "a kernel file keeps the parameters and buffers of the task's Model under their names",
            )


def executed(source: str, name: str) -> types.ModuleType:
    """A source run as a module that ``inspect`` and Triton can look into."""
    import linecache
    import sys
    import uuid

    unique = f"egg_{name}_{uuid.uuid4().hex[:8]}"
    module = types.ModuleType(unique)
    module.__file__ = f"<{unique}>"
    linecache.cache[module.__file__] = (len(source), None, source.splitlines(keepends=True), module.__file__)
    sys.modules[unique] = module
    exec(compile(source, module.__file__, "exec"), module.__dict__)
    return module


def _plain(model: nn.Module) -> list[torch.Tensor]:
    """Tensors in plain attributes."""
    return [v for part in model.modules() for v in vars(part).values() if isinstance(v, torch.Tensor)]
