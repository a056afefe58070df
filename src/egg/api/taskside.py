"""The far side of :mod:`egg.api.apart`: a confined process that runs a task's code and answers questions.

Its parent imports this module once and forks; each fork serves one task. Questions come as pickles, from us;
answers go back as JSON, and the reader builds values of known types from them.
"""

from __future__ import annotations

import base64
import contextlib
import os
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch._dynamo
from torch.overrides import TorchFunctionMode

from egg.core.codec import to_json
from egg.core.error_json import error_to
from egg.core.errors import EggError, MachineError, TaskError
from egg.core.plan import Answer
from egg.core.policy import Precision
from egg.core.roles import Brief
from egg.core.source import Task
from egg.evaluator.task.audit import audit
from egg.evaluator.task.facts import facts_from, task_facts
from egg.evaluator.task.interface import Interface, interface_of
from egg.evaluator.task.program import Program, on_task
from egg.evaluator.task.workload import observed
from egg.evaluator.transport.wire import Channel, WireClosed
from egg.expert.team import ExpertTeam
from egg.hardware.gpus import Gpu


def main(channel: Channel, means: list[str]) -> None:
    """Serve until the other side hangs up."""
    channel.send({"id": 0, "pid": os.getpid(), "sandbox": means})
    on_task.set(lambda what: channel.send({"task": what}))
    while True:
        try:
            request, _ = channel.receive()
        except WireClosed:
            return
        channel.send({"id": request["id"], **_answered(request)})


def _answered(request: dict[str, Any]) -> dict[str, Any]:
    if request["command"] == "warm":
        return {}
    try:
        given = pickle.loads(base64.b64decode(request["work"]))
        return {"answer": to_json(COMMANDS[request["command"]](*given))}
    except EggError as error:
        return {"error": error_to(error)}
    except torch.OutOfMemoryError as error:
        return {"error": error_to(MachineError(f"out of memory: {error}", "use a smaller task"))}


def _loads(task: Task, device: str) -> bool:
    """Whether the task can be loaded, and its inputs can be made where kernels are judged.

    Without a GPU ``get_inputs`` runs once on the meta device, which costs no memory, to see whether it asks
    for CUDA. Any other failure of that call is left to the run itself, which reports it.
    """
    with Program.load(task) as program:
        if device == "cpu" and not torch.cuda.is_available():
            with contextlib.suppress(Exception), torch.device("meta"), (asked := AsksForCuda()):
                program.module.__dict__["get_inputs"]()
            if asked.seen:
                raise TaskError(
                    f"task {task.name!r}: get_inputs() makes its tensors on CUDA, and there is no GPU here",
                    "leave the device out of get_inputs(): inputs are moved to the device that judges",
                )
    return True


class AsksForCuda(TorchFunctionMode):
    """Raises, as PyTorch does without a GPU, wherever a tensor is made on CUDA or moved there."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        devices = [named.get("device"), *(args[1:2] if name == "to" else ())]
        if name == "cuda" or any(_is_cuda(device) for device in devices):
            self.seen = True
            raise AssertionError("Torch not compiled with CUDA enabled")
        return func(*args, **named)


def _is_cuda(device: object) -> bool:
    return isinstance(device, str | torch.device) and str(device).startswith("cuda")


def _seen(task: Task) -> dict[str, Any]:
    found = observed(task)
    return {"facts": facts_from(found), "workload": found.workload}


def _audited(task: Task, precision: Precision, device: str, rescaled: bool) -> dict[str, Any]:
    return audit(task, precision, torch.device(device), rescaled=rescaled).to_json()


def _facts(task: Task, gpu: Gpu, precision: Precision) -> Any:
    return task_facts(task, gpu, precision)


def _interface(task: Task) -> Interface:
    return interface_of(task)


def _answer(task: Task, role: str, brief: Brief, more: tuple[Any, ...]) -> Answer:
    return getattr(TEAM, role)(brief, *more)


TEAM = ExpertTeam()
COMMANDS: dict[str, Callable[..., Any]] = {
    "loads": _loads,
    "facts": _facts,
    "seen": _seen,
    "audit": _audited,
    "interface": _interface,
    "role": _answer,
}
