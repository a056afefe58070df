"""What a program looks like from outside: constructor, state, inputs, outputs, seen without data."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from egg.core.errors import TaskError
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task.dataless import META, WithoutData
from egg.evaluator.task.meta import on_meta
from egg.evaluator.task.program import Program
from egg.evaluator.task.rescale import CannotRescale, rescale

TENSOR, TENSORS = "tensor", "tensors"
SMALL_FLOPS, SMALL_ELEMENTS = 2e6, 1 << 15


@dataclass(frozen=True)
class Argument:
    """An argument of a constructor or of ``forward``. ``type`` is ``tensor``, ``tensors``, or a Python type's
    name as :func:`type_of` spells it; ``text`` is the value's literal, empty for tensors."""

    name: str
    type: str
    text: str = ""


@dataclass(frozen=True)
class Interface:
    """One program's."""

    constructor: tuple[Argument, ...]
    inputs: tuple[Argument, ...]
    parameters: tuple[str, ...]
    """By name; tied ones under each of their names."""
    buffers: tuple[str, ...]
    changed: tuple[str, ...]
    """Inputs, parameters and buffers that ``forward`` writes to."""
    outputs: int
    single: bool
    """Whether ``forward`` returns a tensor, or a tuple of ``outputs`` of them."""
    small: str
    """The task's source at sizes for Triton's interpreter, where it can be shrunk."""


def interface_of(task: Task) -> Interface:
    """By one forward on tensors without data; :class:`TaskError` where no operator can stand for it."""
    with Program.load(task) as program:
        module = on_meta(program)
        inputs = program.inputs(0, META, Precision.MATCH)
        state = dict(_state(module))
        names = program.input_names(len(inputs))[: len(inputs)]
        versions = {name: tensor._version for name, tensor in _flat(names, inputs, state).items()}
        with warnings.catch_warnings(), META, WithoutData():
            warnings.simplefilter("ignore")
            results = program.run(module, inputs)
        after = _flat(names, inputs, dict(_state(module)))
        changed = {n for n, t in after.items() if n not in versions or t._version != versions[n]}
        if changed.intersection(buffers := tuple(n for n, _ in module.named_buffers(remove_duplicate=False))):
            changed.update(buffers)  # statistics of a norm change together, and not all of them show it
        return Interface(
            constructor=tuple(_argument(n, v) for n, v in program.bound_arguments().items()),
            inputs=tuple(_argument(n, v) for n, v in zip(names, inputs, strict=True)),
            parameters=tuple(n for n, _ in module.named_parameters(remove_duplicate=False)),
            buffers=buffers,
            changed=tuple(sorted(changed)),
            outputs=_counted(task, results),
            single=isinstance(results, torch.Tensor),
            small=_small(task),
        )


def type_of(value: Any) -> str:
    """``tensor``, ``tensors``, ``bool``, ``int``, ``float``, ``str``, ``list[int]``, ``tuple[float]``, or
    ``other``."""
    if isinstance(value, torch.Tensor):
        return TENSOR
    if type(value) in (bool, int, float, str):
        return type(value).__name__
    if isinstance(value, list | tuple) and value:
        kinds = {type_of(part) for part in value}
        if kinds == {TENSOR}:
            return TENSORS
        if len(kinds) == 1 and (kind := kinds.pop()) in ("bool", "int", "float"):
            return f"{type(value).__name__}[{kind}]"
    return "other"


def _small(task: Task) -> str:
    try:
        return rescale(task, max_flops=SMALL_FLOPS, max_elements=SMALL_ELEMENTS).task.source
    except CannotRescale:
        return task.source


def _argument(name: str, value: Any) -> Argument:
    kind = type_of(value)
    return Argument(name, kind, "" if kind in (TENSOR, TENSORS) else repr(value))


def _state(module: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]


def _flat(names: list[str], inputs: list[Any], state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    given = {n: v for n, v in zip(names, inputs, strict=True) if isinstance(v, torch.Tensor)}
    return {**given, **state}


def _counted(task: Task, results: Any) -> int:
    if isinstance(results, torch.Tensor):
        return 1
    if isinstance(results, list | tuple) and results and all(isinstance(r, torch.Tensor) for r in results):
        return len(results)
    raise TaskError(
        f"task {task.name!r}: forward returns {type(results).__name__}, not a tensor or a tuple of tensors",
        "an operator returns tensors: wrap the program so that it does",
    )
