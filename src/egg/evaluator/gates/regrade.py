"""Regrade: judged again with new questions in a new process, as a stranger would.

A process that answered in fenced memory was such a one already.

The last process runs the file as any Python program does, without guards: what those put in the place of
Python's own (copies of modules, checked built-ins) must not be what the answers depend on. A file that asks
for it where there are guards is refused there; where there are none it gets the original.
"""

from __future__ import annotations

from egg.evaluator.gates import many
from egg.evaluator.gates.correctness import examine, examined_as
from egg.evaluator.process.handle import Fault
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Notes, Trial

CALLS = 8
HINT = (
    "answer alike wherever the file is imported; ask nothing of built-ins and modules but what they compute"
)


def run(trial: Trial) -> Notes:
    unanswered = 0
    for _ in range(trial.settings.regrades - trial.fenced):
        trial.connection.restart()
        examine(trial, trial.reference.case("regrade, as built"))
        trial.connection.reweigh()
        unanswered += not examined_as(trial, "normal", "regrade, other weights")
        trial.connection.restore_weights()
    if trial.restricted:
        _without_guards(trial)
    return {"processes": trial.settings.regrades, "without_answer": unanswered}


def _without_guards(trial: Trial) -> None:
    trial.connection.restart(plain=True)
    try:
        examine(trial, trial.reference.case("without guards, as built"))
        trial.connection.reweigh()
        many.alike(trial, CALLS)
    except Refused as wrong:
        raise Refused("state.callers", f"as a plain module of Python: {wrong.evidence}", HINT) from None
    except Fault as fault:
        if fault.reason != "candidate.error":
            raise
        raise Refused(
            "state.callers", f"raises as a plain module of Python: {fault.evidence}", HINT
        ) from None
    trial.connection.restore_weights()
