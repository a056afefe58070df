"""Whether a task at some size is a call that a kernel file claims to answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from egg.core.domain import Call, Domain, Layout, Mode, TensorFacts
from egg.core.errors import KernelFileError
from egg.core.policy import Precision
from egg.core.source import Candidate, Task
from egg.evaluator.task.program import Program

Outside = Callable[[Task], str]
"""Why a task's own call is outside a domain, in half a sentence; empty where it is inside."""


def tensor_facts(tensor: torch.Tensor, dtype: str) -> TensorFacts:
    """A tensor as far as a domain speaks of it; ``dtype`` as PyTorch spells it, without the prefix."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    layouts = [Layout.CONTIGUOUS] if tensor.is_contiguous() else []
    if last is not None and tensor.is_contiguous(memory_format=last):
        layouts.append(Layout.CHANNELS_LAST)
    return TensorFacts(dtype, tuple(tensor.shape), frozenset(layouts))


def outside_of(candidate: Candidate, task: Task, precision: Precision) -> Outside | None:
    """The test against the domain that a file states.

    ``None`` where the file states none, or none that can be read, or one that excludes the task itself: such
    a statement says nothing of other sizes. Modes are left out: a size is the same in both.
    """
    try:
        domain = Domain.of_source(candidate.source)
    except (KernelFileError, SyntaxError):
        return None
    if domain is None:
        return None
    anyway = replace(domain, modes=tuple(Mode))

    def outside(at: Task) -> str:
        with Program.load(at) as program:
            return anyway.outside(_call(program, precision))

    return None if outside(task) else outside


def _call(program: Program, precision: Precision) -> Call:
    """A task's own call, without data."""
    inputs: dict[str, Any] = {}
    given = program.inputs(0, torch.device("meta"), precision)
    for name, value in zip(program.input_names(len(given)), given, strict=False):
        tensor = isinstance(value, torch.Tensor)
        inputs[name] = tensor_facts(value, str(value.dtype).removeprefix("torch.")) if tensor else value
    return Call(inputs, program.bound_arguments())
