"""How a module is called: a function as a module, arguments in one form, tensors that are one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from egg.core.errors import TaskError


class Called(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def twins_of(leaves: Sequence[Any]) -> tuple[int, ...]:
    """For each leaf the place of the first one that is the same tensor; its own where it is the first."""
    first: dict[int, int] = {}
    return tuple(
        first.setdefault(id(leaf), place) if isinstance(leaf, torch.Tensor) else place
        for place, leaf in enumerate(leaves)
    )


def canonical(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """The arguments in one form, however they were passed: by position where possible, defaults filled in."""
    try:
        bound = signature_of(module).bind(*args, **kwargs)
    except TypeError as error:
        raise TaskError(f"{type(module).__name__}: {error}", "give the arguments of forward") from None
    bound.apply_defaults()
    return tuple(bound.args), dict(bound.kwargs)


def signature_of(module: nn.Module) -> inspect.Signature:
    return inspect.signature(module.function if isinstance(module, Called) else module.forward)


def initialized(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Give lazy parameters their shapes, as the first forward does."""
    lazy = torch.nn.parameter.is_lazy
    if any(lazy(p) for p in (*module.parameters(), *module.buffers())):
        with torch.no_grad():
            module(*args, **kwargs)
