"""Correctness at sizes between the one that is interpreted and the task's own.

Most questions are put at the smallest size that still looks like the task. A file may take another branch,
in host code or in a kernel, where one of the task's sizes is larger. So each size is put back to the
task's own alone, as far as the interpreter can bear it, and a question is asked there, of a new process,
which is then called again (:mod:`egg.evaluator.gates.repeated`).
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from egg.core.source import Task
from egg.evaluator.gates import build, repeated
from egg.evaluator.gates.correctness import examine
from egg.evaluator.gates.domain import GUARD
from egg.evaluator.process.handle import Fault
from egg.evaluator.reference.reference import Reference
from egg.evaluator.task.program import Program
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Notes, Trial

MOST_SECONDS = 60.0
"""After which no further size is tried."""
CALL_SECONDS = 30.0
SHARE = 4
"""Further calls at a size may take so many times less than those at the task's own."""
NO_VERDICT = ("limits.timeout", "limits.memory", "kernel.unsupported")
"""A call that is too much for an interpreter says nothing of the file."""
RAISES = ("candidate.error", "build.parameters")
"""A file that is made for the task's own size may say so with an error at any other."""
BRANCH = "the answer must be right at every size between the one that is interpreted and the task's own"


def run(trial: Trial) -> Notes:
    offline = trial.offline
    assert offline is not None
    until, right, left = time.perf_counter() + MOST_SECONDS, [], []
    for size in offline.sizes:
        at = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in size.changes.items()) or "its own"
        if time.perf_counter() > until or not right_at(trial, size.task, at):
            left.append(at)
        else:
            right.append(at)
    return {"right_at": right, "no_answer_at": left}


def right_at(trial: Trial, task: Task, at: str) -> bool:
    """Whether one question was answered rightly there; ``False`` where it raises, or is too much to run."""
    program = Program.load(task)
    settings = replace(
        trial.settings, call_seconds=min(CALL_SECONDS, trial.settings.call_seconds), input_sets=1
    )
    reference = Reference(program, trial.policy.precision, trial.device)
    other = Trial(
        reference, trial.candidate, trial.policy, settings, trial.forkserver, gpu=trial.gpu,
        restricted=trial.restricted, offline=trial.offline,
    )  # fmt: skip
    try:
        build.run(other)
        other.level()
        began = time.perf_counter()
        case = reference.case("another size")
        examine(other, case, keep=True)
        each = time.perf_counter() - began
        repeated.run(other, case, partial(examine, other), each, settings.own_seconds / SHARE)
    except Fault as fault:
        if fault.reason in (*NO_VERDICT, *RAISES):
            return False
        evidence = f"wrong without an error: {fault.reason}: {fault.evidence} (run at {at})"
        raise Refused("domain.wrong", evidence, GUARD, facts=fault.facts) from fault
    except Refused as wrong:
        if wrong.reason in RAISES:
            return False
        raise Refused(wrong.reason, f"{wrong.evidence} (run at {at})", BRANCH, facts=wrong.facts) from None
    finally:
        other.offline = None
        other.close()
        program.unload()
    return True
