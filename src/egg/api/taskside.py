"""The far side of :mod:`egg.api.apart`: a confined process that runs a task's code and answers questions.

Its parent imports this module once and forks; each fork serves one task. Questions come as pickles, from us;
answers go back as JSON, and whoever reads them builds values of known types from them.
"""

from __future__ import annotations

import base64
import os
import pickle
from collections.abc import Callable
from typing import Any

import torch

from egg.core.codec import to_json
from egg.core.errors import EggError, MachineError
from egg.core.plan import Answer
from egg.core.policy import Precision
from egg.core.roles import Brief
from egg.core.source import Task
from egg.evaluator.oracle import error_to
from egg.evaluator.process.wire import Channel, WireClosed
from egg.evaluator.task.audit import audit
from egg.evaluator.task.facts import task_facts, told
from egg.evaluator.task.program import Program, on_task
from egg.evaluator.task.workload import observed
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


def _loads(task: Task) -> bool:
    with Program.load(task):
        return True


def _seen(task: Task) -> dict[str, Any]:
    found = observed(task)
    return {"facts": told(found), "workload": found.workload}


def _audited(task: Task, precision: Precision, device: str, rescaled: bool) -> dict[str, Any]:
    return audit(task, precision, torch.device(device), rescaled=rescaled).to_json()


def _facts(task: Task, gpu: Gpu, precision: Precision) -> Any:
    return task_facts(task, gpu, precision)


def _said(task: Task, role: str, brief: Brief, more: tuple[Any, ...]) -> Answer:
    return getattr(TEAM, role)(brief, *more)


TEAM = ExpertTeam()
COMMANDS: dict[str, Callable[..., Any]] = {
    "loads": _loads,
    "facts": _facts,
    "seen": _seen,
    "audit": _audited,
    "role": _said,
}
