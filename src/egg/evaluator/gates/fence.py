"""Memory: judged again in a new process in which unmapped memory lies around every tensor, at full size.

Everything the candidate's process allocates (inputs, weights, outputs, workspace) is fenced
(:mod:`egg.evaluator.worker.fence`): once so that a tensor ends where its mapping ends, once so that it starts
where it starts. An access beyond is an illegal one, which no mask of the data can hide. The questions are
those of a regrade, so one new process serves for both.

Where the fence cannot be had, or a candidate cannot run inside it (no memory, an allocator of its own), the
gate says so in its notes and in a warning, and refuses nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from egg.evaluator.gates.correctness import examine
from egg.evaluator.process.handle import Fault
from egg.evaluator.transport import protocol
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Notes, Trial
from egg.evaluator.worker.fence import Arrangement

BEYOND = {Arrangement.END: "past the end", Arrangement.START: "before the start"}
HINT = "mask loads and stores with the tensor's true extent; check offsets that may be negative"


class Unfenced(Exception):
    """The candidate could not be tried in fenced memory."""


def run(trial: Trial) -> Notes:
    try:
        _fenced(trial)
    except Unfenced as reason:
        trial.warnings.append(f"memory safety was not checked at full size: {reason}"[:300])
        trial.reference.restore()
        trial.connection.restart()
        return {"fenced": False, "reason": str(reason)}
    trial.fenced = True
    return {"fenced": True, "arrangements": [arrangement.value for arrangement in Arrangement]}


def _fenced(trial: Trial) -> None:
    _asked(lambda: trial.connection.restart(fence=True), Arrangement.END)
    _within(trial, Arrangement.END, "fenced at the end, as built")
    trial.reference.other_weights()
    _within(trial, Arrangement.START, "fenced at the start, other weights")
    trial.reference.restore()


def _within(trial: Trial, arrangement: Arrangement, label: str) -> None:
    """One question with everything laid out anew."""

    def question() -> None:
        _notice(trial, arrangement)
        trial.connection.fresh()
        trial.connection.share_weights()
        try:
            examine(trial, trial.reference.case(label))
        except Refused as wrong:
            raise _because_of_the_fence(trial, label, wrong) from None
        _notice(trial, arrangement)

    _asked(question, arrangement)


def _notice(trial: Trial, arrangement: Arrangement) -> None:
    """Have the fence arranged, and hear what it saw."""
    seen = trial.connection.request(protocol.Fence(arrangement.value))
    if why := seen.unavailable or seen.failed:
        raise Unfenced(why)
    if seen.damaged:
        raise Refused("memory.out_of_bounds", f"something was written {seen.damaged[0]}", HINT)


def _asked(what: Any, arrangement: Arrangement) -> None:
    try:
        what()
    except Fault as fault:
        if fault.reason != "kernel.illegal_access":
            raise Unfenced(f"{fault.reason}: {fault.evidence}") from None
        raise Refused(
            "memory.out_of_bounds",
            f"an access {BEYOND[arrangement]} of a tensor, at the task's own size: {fault.evidence}"[:600],
            HINT,
            facts=replace(fault.facts, own_size=True),
        ) from None


def _because_of_the_fence(trial: Trial, label: str, wrong: Refused) -> Refused:
    """Tell what is wrong only where memory beyond a tensor holds NaN from what is wrong anywhere."""
    trial.connection.restart()
    try:
        examine(trial, trial.reference.case(f"not {label}"))
    except Refused as also:
        return also
    return Refused(
        "memory.out_of_bounds",
        f"right in ordinary memory, wrong where other memory lies around each tensor: {wrong.evidence}",
        HINT,
    )
