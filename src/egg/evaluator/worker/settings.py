"""What a call must leave as it was, because the caller's program goes on with it.

Settings of the process; of the module its modes, its hooks and the names in its ``state_dict``; of each
parameter, which an optimizer holds, the object itself, its memory, its gradient, its hooks and whether it
learns; of each tensor that it is given its form, and the same; of dictionaries and lists what they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from egg.evaluator.task.containers import contents
from egg.evaluator.worker.held import HOOKS, parameters_of, parts_of

_vars = vars
ACCUMULATED = 3.0
"""In every element of a gradient that was there before."""
MOST_ACCUMULATED = 1 << 22
"""Elements: a larger tensor is given no gradient, which would take as much memory once more."""


class Place(int):
    """An address, of which only the difference counts."""


class LeftChanged(Exception):
    """The file changed settings of the process, its module or its arguments."""

    reason = "state.settings"


@contextmanager
def process_unchanged(what: str) -> Iterator[None]:
    """Raise :class:`LeftChanged` where ``what`` leaves a setting of the process at another value."""
    before = _current()
    yield
    _compare(what, before, _current())


@contextmanager
def as_frozen(module: nn.Module, arguments: Any) -> Iterator[None]:
    """Meanwhile no parameter and no argument requires a gradient, as for a caller who asks for none.

    Each holds a gradient that was accumulated before, which a forward must leave alone: else
    :class:`LeftChanged` is raised.
    """
    own = [(f"self.{name}", tensor) for name, tensor in parameters_of(module).items()]
    given = [t for t in tree_leaves(arguments) if type(t) is torch.Tensor]
    named = [*own, *((f"argument tensor {at}", t) for at, t in enumerate(given))]
    held = [(name, t) for name, t in named if t.is_leaf and t.is_floating_point() and not t.is_sparse]
    before = [(tensor, tensor.requires_grad, tensor.grad) for _, tensor in held]
    try:
        for _, tensor in held:
            tensor.requires_grad_(False)
            if tensor.numel() <= MOST_ACCUMULATED:
                tensor.grad = torch.full_like(tensor, ACCUMULATED)
        yield
        for name, tensor in held:
            if tensor.numel() <= MOST_ACCUMULATED and not _intact(tensor.grad):
                raise LeftChanged(f"forward changes the gradient that a caller accumulated in {name}")
    finally:
        for tensor, required, gradient in before:
            tensor.grad = gradient
            tensor.requires_grad_(required)


@contextmanager
def frozen(module: nn.Module, arguments: Any) -> Iterator[None]:
    """Meanwhile no parameter and no argument requires a gradient."""
    given = (tensor for tensor in tree_leaves(arguments) if type(tensor) is torch.Tensor)
    learning = [tensor for tensor in (*parameters_of(module).values(), *given) if tensor.requires_grad]
    try:
        for tensor in learning:
            tensor.requires_grad_(False)
        yield
    finally:
        for tensor in learning:
            tensor.requires_grad_(True)


def _intact(gradient: torch.Tensor | None) -> bool:
    return gradient is not None and bool((gradient == ACCUMULATED).all())


class Settings:
    """As they are now; :meth:`check` compares. What the judge switches around a call it switches back: what a
    call leaves is seen only inside."""

    def __init__(self, module: nn.Module, arguments: Any) -> None:
        self._look = lambda: _current() | _of_module(module) | _of_arguments(arguments)
        self._before = self._look()

    def check(self) -> None:
        """Raise :class:`LeftChanged` for the first that is another now."""
        _compare("forward", self._before, self._look())


def checked(module: nn.Module) -> Callable[..., Any]:
    """``module``, whose calls must leave all this as it was."""

    def call(*arguments: Any) -> Any:
        settings = Settings(module, arguments)
        result = module(*arguments)
        settings.check()
        return result

    return call


def _compare(what: str, earlier: dict[str, Any], later: dict[str, Any]) -> None:
    for name in (*earlier, *(name for name in later if name not in earlier)):
        now, before = later.get(name), earlier.get(name)
        if now != before:
            was = "" if isinstance(before, Place) else f", it was {_worded(before)}"
            raise LeftChanged(f"{what} leaves {name} {_worded(now)}{was}")


def _worded(value: Any) -> str:
    return "absent" if value is None else "at another place" if isinstance(value, Place) else f"at {value}"


def _of_module(module: nn.Module) -> dict[str, Any]:
    """Buffers that are no part of ``state_dict`` may come and go."""
    found: dict[str, Any] = {}
    for prefix, part in parts_of(module):
        held = _vars(part)
        found[f"self.{prefix}training"] = held["training"]
        found[f"hooks of self.{prefix}".rstrip(".")] = tuple(len(held.get(name) or ()) for name in HOOKS)
        for name, parameter in held["_parameters"].items():
            if parameter is not None:
                found[f"self.{prefix}{name}.requires_grad"] = parameter.requires_grad
                found |= _of_tensor(f"self.{prefix}{name}", parameter)
        for name, buffer in held["_buffers"].items():
            if buffer is not None and name not in held["_non_persistent_buffers_set"]:
                found[f"self.{prefix}{name} in the state_dict"] = True
    return found


def _of_tensor(name: str, tensor: torch.Tensor) -> dict[str, Any]:
    """What a caller's program holds on to, besides the values."""
    gradient = tensor.grad if tensor.is_leaf else None
    return {
        f"the object {name}": Place(id(tensor)),
        f"the memory of {name}": Place(tensor.data_ptr() if tensor.layout is torch.strided else 0),
        f"the gradient of {name}": None if gradient is None else Place(id(gradient)),
        f"hooks on {name}": len(tensor._backward_hooks or ()) + len(_accumulating(tensor)),
        f"attributes of {name}": tuple(sorted(_vars(tensor))),
    }


def _accumulating(tensor: torch.Tensor) -> Any:
    return getattr(tensor, "_post_accumulate_grad_hooks", None) or ()


def _of_arguments(arguments: Any) -> dict[str, Any]:
    """Form and memory of every tensor, whose values are compared by the judge; and what containers hold."""
    tensors = [leaf for leaf in tree_leaves(arguments) if type(leaf) is torch.Tensor]
    found: dict[str, Any] = {f"arguments{path}": what for path, what in contents(arguments).items()}
    for at, tensor in enumerate(tensors):
        if tensor.layout is torch.strided:
            form = (tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.requires_grad)
            found[f"argument tensor {at}"] = form
            found |= _of_tensor(f"argument tensor {at}", tensor)
    return found


def _current() -> dict[str, Any]:
    return {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "the default dtype": torch.get_default_dtype(),
        "autocast": torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu"),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "the precision of products": torch.get_float32_matmul_precision(),
    }
