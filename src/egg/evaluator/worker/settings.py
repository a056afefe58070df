"""What a call must leave as it was, because the caller's program goes on with it.

Settings of the process; of the module its modes, which of its parameters learn, and the names in its
``state_dict``; of each tensor that it is given its form and its memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from egg.evaluator.worker.held import parts_of

_vars = vars


class LeftChanged(Exception):
    """A forward changed settings of the process, its module or its arguments."""

    reason = "state.settings"


class Settings:
    """As they are now; :meth:`check` compares. What the judge switches around a call it switches back: what a
    call leaves is seen only inside."""

    def __init__(self, module: nn.Module, arguments: Any) -> None:
        self._look = lambda: _current() | _of_module(module) | _of_arguments(arguments)
        self._before = self._look()

    def check(self) -> None:
        """Raise :class:`LeftChanged` for the first that is another now."""
        after = self._look()
        for name in (*self._before, *(name for name in after if name not in self._before)):
            now, before = after.get(name), self._before.get(name)
            if now != before:
                raise LeftChanged(f"forward leaves {name} {_worded(now)}, it was {_worded(before)}")


def checked(module: nn.Module) -> Callable[..., Any]:
    """``module``, whose calls must leave all this as it was."""

    def call(*arguments: Any) -> Any:
        settings = Settings(module, arguments)
        result = module(*arguments)
        settings.check()
        return result

    return call


def _worded(value: Any) -> str:
    return "absent" if value is None else f"at {value}"


def _of_module(module: nn.Module) -> dict[str, Any]:
    """Buffers that are no part of ``state_dict`` may come and go."""
    found: dict[str, Any] = {}
    for prefix, part in parts_of(module):
        held = _vars(part)
        found[f"self.{prefix}training"] = held["training"]
        for name, parameter in held["_parameters"].items():
            if parameter is not None:
                found[f"self.{prefix}{name}.requires_grad"] = parameter.requires_grad
        for name, buffer in held["_buffers"].items():
            if buffer is not None and name not in held["_non_persistent_buffers_set"]:
                found[f"self.{prefix}{name} in the state_dict"] = True
    return found


def _of_arguments(arguments: Any) -> dict[str, Any]:
    """Form and memory of every tensor; the values are compared by the judge."""
    tensors = [leaf for leaf in tree_leaves(arguments) if type(leaf) is torch.Tensor]
    return {
        f"argument tensor {at}": (
            tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.requires_grad, tensor.data_ptr()
        )
        for at, tensor in enumerate(tensors)
        if tensor.layout is torch.strided
    }  # fmt: skip


def _current() -> dict[str, Any]:
    return {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "the default dtype": torch.get_default_dtype(),
        "autocast": torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu"),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "the precision of products": torch.get_float32_matmul_precision(),
    }
