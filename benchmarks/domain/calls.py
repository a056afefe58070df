"""One call of a module, as a value: how it is built, its mode, and what ``forward`` is given."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import torch
from torch import nn

from egg.core.domain import Call as DomainCall
from egg.core.domain import Layout, Mode, TensorFacts
from egg.evaluator.task.program import Program, map_tensors


class Kind(StrEnum):
    """In which respect a call differs from the captured one."""

    CAPTURED = "captured"
    SIZES = "sizes"
    ARGUMENTS = "arguments"
    LAYOUT = "layout"
    DTYPE = "dtype"
    MODE = "mode"
    GRADIENT = "gradient"
    OPTIONAL = "optional"
    AGAIN = "again"


@dataclass(frozen=True)
class Call:
    """What both sides are asked."""

    kind: Kind
    name: str
    arguments: Mapping[str, Any]
    """Of the constructor, by name."""
    inputs: tuple[Any, ...]
    named: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``forward`` given by name."""
    train: bool | None = None
    """Its mode; ``None`` is the one that its constructor leaves it in."""
    dtype: torch.dtype | None = None
    """What floating parameters are cast to; ``None`` leaves them."""
    gradient: bool = False
    reweigh: bool = False
    """Whether the weights are changed in place first, under a module that was already called."""

    def as_kind(self, kind: Kind, name: str, **changes: Any) -> Call:
        return replace(self, kind=kind, name=name, **changes)

    def fresh(self) -> tuple[list[Any], dict[str, Any]]:
        """Copies of the inputs in the layout they have: a side may write into its own."""
        positional, named = map_tensors((list(self.inputs), dict(self.named)), copied)
        return positional, named


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, strides and offset in other memory."""
    tensor = tensor.detach()
    if tensor.is_contiguous() and tensor.storage_offset() == 0:
        return tensor.clone()
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    span = 1 + sum((n - 1) * s for n, s in steps) if tensor.numel() else 0
    whole = tensor.as_strided((span,), (1,)).clone()
    room = whole.new_zeros(tensor.storage_offset() + span)
    room[tensor.storage_offset() :] = whole
    return room.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


@dataclass(frozen=True)
class Signatures:
    """The names of a task's constructor and forward arguments, and their defaults."""

    constructor: inspect.Signature
    forward: inspect.Signature

    @classmethod
    def of(cls, program: Program) -> Signatures:
        model: type[nn.Module] = program.module.__dict__["Model"]
        forward = inspect.signature(model.forward)
        rest = [p for name, p in forward.parameters.items() if name != "self"]
        return cls(inspect.signature(model), forward.replace(parameters=rest))

    @property
    def plain(self) -> bool:
        """Whether every constructor argument has a name."""
        return all(p.kind is p.POSITIONAL_OR_KEYWORD for p in self.constructor.parameters.values())

    def arguments(self, args: list[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """By name; a constructor that takes any arguments and is given none is called with none."""
        bound = self.constructor.bind(*args, **kwargs)
        bound.apply_defaults()
        kinds = {name: parameter.kind for name, parameter in self.constructor.parameters.items()}
        several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return {n: value for n, value in bound.arguments.items() if value or kinds[n] not in several}

    def inputs(self, call: Call) -> dict[str, Any]:
        bound = self.forward.bind(*call.inputs, **call.named)
        bound.apply_defaults()
        return dict(bound.arguments)


def as_claimed(call: Call, signatures: Signatures, train: bool) -> DomainCall:
    """A call as far as a file's domain speaks of it. ``train`` is the mode."""
    inputs = {name: _facts(value) for name, value in signatures.inputs(call).items()}
    return DomainCall(inputs, dict(call.arguments), Mode.TRAIN if train else Mode.EVAL)


def _facts(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    layouts = {Layout.CONTIGUOUS} if value.is_contiguous() else set()
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    form = formats.get(value.dim())
    if form is not None and value.is_contiguous(memory_format=form):
        layouts.add(Layout.CHANNELS_LAST)
    return TensorFacts(str(value.dtype).removeprefix("torch."), tuple(value.shape), frozenset(layouts))
