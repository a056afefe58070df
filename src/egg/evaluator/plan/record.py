"""One construction and one call of a candidate, noted and written as a plan's statements.

Runs in a candidate's process, on fake tensors: with a GPU or without one, nothing is launched and no tensor
takes memory. An autotuner takes the first configuration that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from egg.evaluator.offline.capture import CompileOnce, pretence, reason_of
from egg.evaluator.offline.fakedriver import Trace
from egg.evaluator.offline.launch import CompileFailed, Launch
from egg.evaluator.offline.target import GpuTarget
from egg.evaluator.plan.noting import PlanRecorder, noting
from egg.evaluator.plan.spelling import Unspelled
from egg.evaluator.plan.stores import Stores
from egg.evaluator.plan.writing import Noted, Written, written

COMPILE_SECONDS, BUDGET_SECONDS = 15.0, 60.0
"""For each configuration of an autotuner that is tried, and for all of them."""
Form = tuple[tuple[int, ...], str]
VALUES = "compute on the device what depends on values, or hand it to the kernel as a tensor"


@dataclass(frozen=True)
class Request:
    """What is recorded, and the names that its tensors have in the plan."""

    make: Callable[[], nn.Module]
    tensors: Callable[[], list[torch.Tensor]]
    arguments: Callable[[list[torch.Tensor]], list[Any]]
    names: Sequence[str]
    state: dict[str, Form]
    unsaved: dict[str, Form]
    """Buffers that no ``state_dict`` holds."""
    state_of: Callable[..., dict[str, torch.Tensor]]
    parameters_of: Callable[[nn.Module], dict[str, torch.Tensor]]
    source: str
    target: GpuTarget
    taken: Sequence[str] = ()


def record(asked: Request) -> Written:
    """Raises :class:`Unspelled` where a plan cannot hold what the call does."""
    compiler = CompileOnce(asked.target, COMPILE_SECONDS, BUDGET_SECONDS)

    def compiled(launch: Launch) -> tuple[Any, BaseException | None]:
        return compiler(launch) if recorder.trying else (None, None)

    recorder = PlanRecorder(asked.target, compiled, Stores.of_source(asked.source))
    with pretence(recorder, real=False), torch.no_grad():
        try:
            tensors = asked.tensors()  # before anything is noted: what makes an input is no step of a plan
            with recorder.into(Trace()) as trace, noting(recorder):
                module = asked.make()
                arguments = asked.arguments(tensors)
                held = _held(module, asked)
                begins = len(trace.steps)
                result = module(*arguments)
            if recorder.refused is not None:
                raise recorder.refused
            inputs = dict(zip(asked.names, tensors, strict=True))
            return written(Noted(trace.steps, begins, inputs, held, result, frozenset(asked.taken)))
        except (Unspelled, CompileFailed):
            raise
        except Exception as error:
            if recorder.refused is not None:
                raise recorder.refused from error
            raise Unspelled(reason_of(error), VALUES) from error


def _held(module: nn.Module, asked: Request) -> dict[str, torch.Tensor]:
    """The candidate's tensors that stand for the task's, by name or else by order, as a plan spells them."""
    theirs, parameters = asked.state_of(module), asked.parameters_of(module)
    forms = {name: (tuple(t.shape), str(t.dtype)) for name, t in theirs.items()}
    by_name = {name: name for name, form in forms.items() if asked.state.get(name) == form}
    if not set(parameters) <= set(by_name):
        if list(forms.values()) != list(asked.state.values()):
            missing = sorted(set(parameters) - set(by_name))[:3]
            raise Unspelled(
                f"parameters that match none of Model's: {', '.join(missing)}",
                "ModelNew must hold the parameters of Model: same names, or same order and shapes",
            )
        by_name = dict(zip(forms, asked.state, strict=True))
    held = {path(ours): theirs[own] for own, ours in by_name.items()}
    return held | {
        path(name): tensor
        for name, tensor in asked.state_of(module, persistent=False).items()
        if name not in theirs and asked.unsaved.get(name) == (tuple(tensor.shape), str(tensor.dtype))
    }


def path(name: str) -> str:
    """``layers.0.weight`` as an expression."""
    spelled = "self"
    for part in name.split("."):
        spelled += f"[{part}]" if part.isdecimal() else f".{part}"
    return spelled
