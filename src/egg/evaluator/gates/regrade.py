"""Regrade: judged again with new questions in a new process, as a stranger would.

A process that answered in fenced memory was such a one already.
"""

from __future__ import annotations

from egg.evaluator.gates.correctness import examine, examined_as
from egg.evaluator.trial.trial import Notes, Trial


def run(trial: Trial) -> Notes:
    unanswered = 0
    for _ in range(trial.settings.regrades - trial.fenced):
        trial.connection.restart()
        examine(trial, trial.reference.case("regrade, as built"))
        trial.connection.reweigh()
        unanswered += not examined_as(trial, "normal", "regrade, other weights")
        trial.connection.restore_weights()
    return {"processes": trial.settings.regrades, "without_answer": unanswered}
