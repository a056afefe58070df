"""Regrade: judged again with new questions in a new process, as a stranger would.

A process that answered in fenced memory was such a one already.
"""

from __future__ import annotations

from typing import Any

from egg.evaluator.gates.correctness import examine
from egg.evaluator.trial.trial import Trial


def run(trial: Trial) -> dict[str, Any]:
    for _ in range(trial.settings.regrades - trial.fenced):
        trial.connection.restart()
        examine(trial, trial.reference.case("regrade, as built"))
        trial.connection.reweigh()
        examine(trial, trial.reference.case("regrade, other weights", "normal"))
        trial.connection.restore_weights()
    return {"processes": trial.settings.regrades}
