"""What may leave the house: the kernel that a run ended with, and the evaluation that accepted it."""

from __future__ import annotations

from pathlib import Path

from egg.api.apart import interface
from egg.api.runs import state_of
from egg.core.codec import from_json
from egg.core.errors import UsageError
from egg.core.source import Task
from egg.engine.state import RunState
from egg.evaluator.task.interface import Interface
from egg.export.package import Claim


def claim_of_run(folder: Path) -> Claim:
    """The winner of a run; :class:`UsageError` where the run has none."""
    return claim_of(folder, state_of(folder))


def claim_of(folder: Path, state: RunState) -> Claim:
    closed = state.closed
    if closed is None:
        raise UsageError(f"the run in {folder} has not ended", f"go on with `egg resume {folder}`")
    if closed.candidate is None:
        raise UsageError(
            f"the run in {folder} has no kernel: {closed.reason}", "the original program is its result"
        )
    kernel = state.kernels[closed.candidate]
    return Claim(state.started.task, kernel.candidate, kernel.evaluation)


def seen_from_outside(task: Task) -> Interface:
    """The task's interface, found in a confined process: it runs the task's code."""
    return from_json(Interface, interface(task))
