"""A task's code, run in a process of its own: whatever this program wants to know of a task, it asks there.

A task file may be a stranger's. Its module-level code, its inputs and its forward run in a process that is
confined as a candidate's is (:mod:`egg.evaluator.process`): no variables of our environment, no network, no
files but a folder of its own, limits, and nothing of it left when it ends. The built-in team captures and
writes there too. What comes back is JSON, read as values of known types; what a task does wrong is a
:class:`~egg.core.errors.TaskError` that says what it was.

One such process serves one task, and the next question on the same task, so that what the team captured is
captured once.
"""

from __future__ import annotations

import atexit
import base64
import io
import os
import pickle
import threading
import types
from functools import cache
from typing import Any

from egg.core.codec import from_json
from egg.core.error_json import error_from
from egg.core.errors import EggError, MachineError, TaskError
from egg.core.facts import Facts, ProgramFacts, Workload
from egg.core.plan import Diagnosis, Draft, Pass, Plan, Unusable, Weighed
from egg.core.policy import Precision
from egg.core.roles import Brief, EveryRole, Failure
from egg.core.source import Task
from egg.evaluator.judge.oracle import TASK_SECONDS_VARIABLE, task_limit
from egg.evaluator.process.handle import Fault, ForkServer, WorkerHandle
from egg.evaluator.process.sandbox import Limits
from egg.hardware.gpus import Gpu

ANSWER_SECONDS = 1800.0
"""For a whole question, which may run the task many times; each run has its own, shorter limit."""
SERVER = "egg.api.taskside:main"


def check_loads(task: Task, device: str = "auto") -> None:
    """Raise now for a task that cannot be loaded, or whose inputs need a GPU where ``device`` is none."""
    _house().ask(task, "loads", device)


def facts_of(task: Task, gpu: Gpu, precision: Precision) -> Facts:
    return from_json(Facts, _house().ask(task, "facts", gpu, precision))


def seen(task: Task) -> tuple[ProgramFacts, Workload]:
    """One forward without data: added up, and operation by operation."""
    found = _house().ask(task, "seen")
    return from_json(ProgramFacts, found["facts"]), from_json(Workload, found["workload"])


def audited(task: Task, precision: Precision, device: str, *, rescaled: bool) -> dict[str, Any]:
    """The task's audit as JSON."""
    return _house().ask(task, "audit", precision, device, rescaled)


def interface(task: Task) -> dict[str, Any]:
    """The task's :class:`~egg.evaluator.task.interface.Interface` as JSON."""
    return _house().ask(task, "interface")


def prepare() -> None:
    """Start now what the first question would wait for."""
    _house()


class ApartTeam(EveryRole):
    """The built-in team, where the task's code is: all four roles."""

    def design(self, brief: Brief) -> Plan | Pass | Unusable:
        return from_json(Plan | Pass | Unusable, _role("design", brief))

    def alternatives(self, brief: Brief) -> tuple[Weighed, ...]:
        return from_json(tuple[Weighed, ...], _role("alternatives", brief))

    def tune(self, brief: Brief) -> Plan | Pass | Unusable:
        return from_json(Plan | Pass | Unusable, _role("tune", brief))

    def seed(self, brief: Brief) -> Draft | Unusable:
        return from_json(Draft | Unusable, _role("seed", brief))

    def optimize(self, brief: Brief, plan: Plan) -> Draft | Unusable:
        return from_json(Draft | Unusable, _role("optimize", brief, plan))

    def repair(self, brief: Brief, failure: Failure, diagnosis: Diagnosis) -> Draft | Unusable:
        return from_json(Draft | Unusable, _role("repair", brief, failure, diagnosis))

    def translate(self, brief: Brief) -> Draft | Unusable:
        return from_json(Draft | Unusable, _role("translate", brief))

    def diagnose(self, brief: Brief, failure: Failure) -> Diagnosis | Unusable:
        return from_json(Diagnosis | Unusable, _role("diagnose", brief, failure))


def _role(name: str, brief: Brief, *more: Any) -> Any:
    return _house().ask(brief.task, "role", name, brief, more)


class House:
    """The parent of confined processes, and the one that runs the task at hand."""

    def __init__(self) -> None:
        ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limits = Limits(
            address_space=None, resident=ram * 3 // 4, processes=512, open_files=1024, output=1 << 40
        )
        self._forkserver = ForkServer(SERVER, limits)
        self._task: Task | None = None
        self._worker: WorkerHandle | None = None
        self._turn = threading.Lock()

    def ask(self, task: Task, command: str, *given: Any) -> Any:
        """One question on ``task``, answered where its code runs."""
        with self._turn:
            worker = self._for(task)
            work = base64.b64encode(_pickled((task, *given))).decode()
            try:
                reply = worker.request(command, ANSWER_SECONDS, work=work)
            except Fault as fault:
                raise _blamed(task, worker, fault) from None
        if "error" in reply:
            raise _known(reply["error"])
        return reply.get("answer")

    def _for(self, task: Task) -> WorkerHandle:
        worker = self._worker
        if worker is None or not worker.alive or self._task != task:
            if worker is not None:
                worker.end()
            self._task, self._worker = task, self._forkserver.worker()
            self._worker.phase_seconds = task_limit(os.environ)
        assert self._worker is not None
        return self._worker

    def close(self) -> None:
        if self._worker is not None:
            self._worker.end()
        self._forkserver.close()


class _Pickler(pickle.Pickler):
    """Views of mappings travel as what they show."""

    def reducer_override(self, value: Any) -> Any:
        return (dict, (dict(value),)) if isinstance(value, types.MappingProxyType) else NotImplemented


def _pickled(value: Any) -> bytes:
    data = io.BytesIO()
    _Pickler(data).dump(value)
    return data.getvalue()


def _house() -> House:
    return _house_of(os.getpid())


@cache
def _house_of(pid: int) -> House:
    """One for each process of ours; a fork must not talk on its parent's sockets."""
    house = House()
    atexit.register(lambda: house.close() if os.getpid() == pid else None)
    return house


def _known(error: Any) -> EggError:
    """An error as the other side describes it, which may be anything."""
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        hint = str(error.get("hint", ""))
        return error_from({"kind": error.get("kind"), "message": error["message"], "hint": hint})
    return MachineError("the task's process answers in an unknown form", "read the task file")


def _blamed(task: Task, worker: WorkerHandle, fault: Fault) -> EggError:
    """What a task's process did wrong, in words."""
    where = worker.phase or "its code"
    if fault.reason == "limits.timeout":
        return TaskError(
            f"task {task.name!r}: {where} did not end within {worker.phase_seconds:g} s; it was ended",
            f"a task must come to an end; {TASK_SECONDS_VARIABLE} allows more seconds",
        )
    if fault.reason == "limits.died":
        ending = f"; {fault.last_words}" if fault.last_words else ""
        return TaskError(
            f"task {task.name!r}: {where} ended its process{ending}",
            "a task file defines things; it must not exit, nor crash",
        )
    if fault.reason == "limits.memory":
        return MachineError(f"task {task.name!r}: {where}: {fault.evidence}", "use a smaller task")
    return TaskError(f"task {task.name!r}: {where}: {fault.evidence}", "read the task file")
