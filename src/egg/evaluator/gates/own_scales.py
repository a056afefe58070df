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
from egg.evaluator.task.spread import spread
from egg.evaluator.transport.exchange import pack
from egg.evaluator.trial.trial import Trial

WORDS = "slices of its inputs have different sizes"
TURNS = 2
"""Dimensions, the longest first."""
LEEWAY = 4.0


def question(trial: Trial, turn: int) -> Case | None:
    """With slices along one dimension of each input scaled; ``None`` where none is long enough, or where the
    reference has no answer."""
    drawn = trial.reference.draw()
    inputs = spread(drawn, turn, secrets.randbits(48))
    if all(one is other for one, other in zip(pack(inputs)[1], pack(drawn)[1], strict=True)):
        return None
    del drawn
    try:
        case = trial.reference.answer(f"where {WORDS}", inputs, own=False)
    except (TaskError, MachineError):
        trial.level()
        return None
    if not answered(trial, case):
        trial.level()
        return None
    return replace(case, leeway=LEEWAY)
