"""A kernel file that holds the original's tensors: bound again when one of them is another.

``ModelNew`` notices what PyTorch does to its weights in place (a step of an optimizer), and forgets what it
knew when it is moved. It cannot know that the original was given another parameter, or was moved as a
whole: so every call compares where the tensors are with where they were, and builds ``ModelNew`` anew at a
difference.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import nn

from egg.modules.binding import built, executed, owner_of, tensors_of
from egg.modules.capture_types import Captured

TENSORS = frozenset({torch.Tensor, nn.Parameter, nn.Buffer})
"""Types without a mind of their own."""
Place = tuple[dict[str, Any], str]
"""The dictionary of a module that holds a tensor, and its key."""
_ON = ("1", "true", "on", "yes", "y")


class OutsideDomain(Exception):
    """The file's own guard refuses a call."""


class HeldKernel:
    """``ModelNew`` in the original's place; nothing is run before the first call."""

    def __init__(self, source: str, captured: Captured, module: nn.Module) -> None:
        self._source, self._captured, self._module = source, captured, module
        self._owners = [owner_of(module, b.path) for b in captured.bindings if b.role != "constant"]
        self._ties = ties_of(module)
        self._weights: list[torch.Tensor] = []
        self._state: list[Any] = [None]
        self.devices: set[torch.device] = set()
        """Where the original's tensors are."""
        self._make: Any = None
        self._model: nn.Module | None = None

    def changed(self) -> str:
        """Look at the original's tensors; why a kernel cannot hold them, where one is another than before."""
        weights: list[Any] = [held.get(name) for held, name in self._owners]
        state = [t if t is None else (id(t), t.data_ptr(), t.dtype, t.shape, t.stride()) for t in weights]
        if any(held.get(name) is not other.get(key) for (held, name), (other, key) in self._ties):
            return "tied weights are no longer one"
        if state == self._state:
            return ""
        self._model, self._state = None, []
        for tensor in weights:
            if type(tensor) not in TENSORS:
                return f"a weight is a {type(tensor).__name__}"
        self.devices = {tensor.device for tensor in weights}
        self._weights, self._state = weights, state
        return ""

    @property
    def trains(self) -> bool:
        return any(weight.requires_grad for weight in self._weights)

    def answer(self, inputs: Sequence[Any]) -> list[torch.Tensor]:
        """What the kernel computes; :class:`OutsideDomain` where its guard refuses the call."""
        if self._model is None:
            self._model = self._bound()
        try:
            found = self._model(*inputs)
        except (ValueError, TypeError) as error:
            if _from_guard(error):
                raise OutsideDomain(str(error)) from None
            raise
        return list(found) if isinstance(found, tuple | list) else [found]

    def _bound(self) -> nn.Module:
        if self._make is None:
            self._make = executed(self._source, "kernel").__dict__["ModelNew"]
        model = built(self._make, tensors_of(self._captured, self._module))
        return model.train(self._captured.training)


def ties_of(module: nn.Module) -> list[tuple[Place, Place]]:
    """Places that hold one and the same tensor, each with the first of them."""
    first: dict[int, Place] = {}
    found: list[tuple[Place, Place]] = []
    for part in module.modules():
        for held in (part._parameters, part._buffers):
            for name, tensor in held.items():
                if tensor is None:
                    continue
                if id(tensor) in first:
                    found.append(((held, name), first[id(tensor)]))
                first.setdefault(id(tensor), (held, name))
    return found


def _from_guard(error: Exception) -> bool:
    """Whether the file's ``admit`` raised: it looks at a call before anything is computed."""
    at = error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_name == "admit":
            return True
        at = at.tb_next
    return False


def runs_on(kind: str) -> bool:
    """Whether kernels run on such a device in this process: a GPU, or Triton's interpreter on the CPU."""
    if kind == "cpu":
        return os.environ.get("TRITON_INTERPRET", "") in _ON and _interpreter()
    return kind == "cuda"


@cache
def _interpreter() -> bool:
    """The interpreter with EGG's corrections (rounding, reductions, the math library), installed once."""
    from egg.evaluator.interpreter import install

    install(check_bounds=False, check_races=False)
    return True
