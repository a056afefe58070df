"""One forward of a task at its own size, written down operation by operation, without running it.

The forward is made on meta tensors, which have shapes and no data, under the watch of
``evaluator.task.recorder``; what each operator costs is in the tables of ``evaluator.task.costs``.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import keystr, tree_flatten_with_path

from egg.core.errors import TaskError
from egg.core.facts import TensorForm, Workload
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task import costs
from egg.evaluator.task.meta import OutOfTime, distinct_bytes, on_meta
from egg.evaluator.task.program import Program, Scalar, outputs_of
from egg.evaluator.task.recorder import Recorder, WholeLayers, form_of
from egg.evaluator.task.tables import Tables

SECONDS = 5.0
"""For the operators of one forward on meta tensors."""

Leaf = torch.Tensor | Scalar | Any


@dataclass(frozen=True)
class Observed:
    """A forward as it was seen: the workload, and what else it was given and gave."""

    workload: Workload
    arguments: tuple[tuple[str, TensorForm | str], ...]
    """In order, by name; what is no tensor as ``float = 2.5``."""
    results: tuple[tuple[str, TensorForm | str], ...]
    lines: tuple[str, ...]
    """The operations, each as ``aten.add [4096, 2048]``."""


def workload(task: Task, seconds: float = SECONDS) -> Workload:
    """One forward of ``task``; :class:`TaskError` where it does not run on meta tensors, or not in time."""
    return observed(task, seconds).workload


def observed(task: Task, seconds: float = SECONDS) -> Observed:
    """One forward of ``task``, with its arguments and results by name."""
    with Program.load(task) as program, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = on_meta(program)
        inputs = program.inputs(0, torch.device("meta"), Precision.MATCH)
        arguments = list(_named_inputs(module, inputs))
        given = costs.tensors_in(inputs)
        held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        recorder = Recorder(seconds, Tables((*given, *held.values())))
        with _explaining(task), recorder, WholeLayers(recorder):
            value = program.run(module, inputs)
        lone = not isinstance(value, list | tuple | Mapping)
        results = [("output" if lone else f"output.{name}", leaf) for name, leaf in outputs_of(value)]
    made = costs.tensors_in([leaf for _, leaf in results])
    work = Workload(
        inputs=_forms(arguments),
        parameters=_forms(held.items()),
        outputs=_forms(results),
        operations=tuple(recorder.operations),
        least_bytes=distinct_bytes((*given, *held.values())) + distinct_bytes(made) - recorder.tables.spared,
        kept=recorder.values.written((*given, *held.values(), *made, *_attributes(module))),
    )
    return Observed(work, _listed(arguments), _listed(results), tuple(recorder.lines))


@contextlib.contextmanager
def _explaining(task: Task) -> Iterator[None]:
    """Say what a forward on meta tensors asks of a task that failed in it."""
    try:
        yield
    except OutOfTime as error:
        raise OutOfTime(
            f"task {task.name!r}: {error.message}", "a loop over many steps may be cut shorter for its facts"
        ) from error
    except TaskError as error:
        raise TaskError(
            error.message,
            "facts come from a forward on tensors that have shapes and no data: it may not look at values",
        ) from error


def _forms(named: Iterable[tuple[str, Leaf]]) -> dict[str, TensorForm]:
    return {name: form_of(leaf) for name, leaf in named if isinstance(leaf, torch.Tensor)}


def _listed(named: Iterable[tuple[str, Leaf]]) -> tuple[tuple[str, TensorForm | str], ...]:
    return tuple(
        (name, form_of(leaf) if isinstance(leaf, torch.Tensor) else f"{type(leaf).__name__} = {leaf!r}")
        for name, leaf in named
    )


def _named_inputs(module: nn.Module, inputs: list[Any]) -> Iterator[tuple[str, Leaf]]:
    """Each tensor or number that forward is given, by the argument's name and its place within it."""
    for argument, value in zip(_argument_names(module), inputs, strict=False):
        for path, leaf in tree_flatten_with_path(value)[0]:
            yield f"{argument}{keystr(path)}", leaf


def _attributes(module: nn.Module) -> Iterator[torch.Tensor]:
    """Tensors that modules hold without having registered them: state of a kind."""
    for part in module.modules():
        yield from costs.tensors_in(list(vars(part).values()))


def _argument_names(module: nn.Module) -> Iterator[str]:
    """Of forward; those of ``*rest`` are ``rest[0]``, ``rest[1]``, and so on without end."""
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        parameters = [inspect.Parameter("input", inspect.Parameter.VAR_POSITIONAL)]
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            yield from (f"{parameter.name}[{i}]" for i in itertools.count())
        yield parameter.name
