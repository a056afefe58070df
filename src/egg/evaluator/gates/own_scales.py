"""At the task's own size: inputs of which few slices make up most (:mod:`egg.evaluator.task.spread`).

Draws of the task's own hardly show there that a part of a long sum was left out. What is wrong then is wrong
by a large part of the answer, so no magnitudes are looked at, and more conditioning is allowed: what lies
between the largest slices is small beside them, and honest arithmetic of absolute error may lose it.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

from egg.core.errors import MachineError, TaskError
from egg.evaluator.gates.unusual import answered
from egg.evaluator.reference.case import Case
from egg.evaluator.task import spread
from egg.evaluator.transport.exchange import pack
from egg.evaluator.trial.trial import Trial

WORDS = "slices of its inputs have different sizes"
LARGEST = (spread.LARGEST, 1.0)
"""Of the factors: where the reference has no answer to larger inputs (an exponential), slices are only made
smaller."""
LEEWAY = 4.0


def question(trial: Trial, turn: int) -> Case | str:
    """With slices along one dimension of each input scaled, or a few; what was left out, where the reference
    has no answer, or nothing where no dimension is long enough."""
    for largest in LARGEST:
        drawn = trial.reference.draw()
        inputs = spread.spread(drawn, turn, secrets.randbits(48), largest)
        if all(one is other for one, other in zip(pack(inputs)[1], pack(drawn)[1], strict=True)):
            return ""
        del drawn
        try:
            case = trial.reference.answer(f"where {WORDS}", inputs, own=False)
        except (TaskError, MachineError):
            trial.level()
            continue
        if answered(trial, case):
            return replace(case, leeway=LEEWAY)
        trial.level()
    return WORDS
