"""What forward leaves in plain attributes for callers: an auxiliary loss, the load of experts.

Only what forward sets for others is asked for: attributes that depend on the inputs, and that its own next
call does not read. One that it does read shows in the answers.
"""

from __future__ import annotations

from typing import Any

import torch

from egg.core.errors import TaskError
from egg.evaluator.reference.answers import same_values
from egg.evaluator.task.attributes import Shown, attributes_of, shown
from egg.evaluator.task.program import outputs_of
from egg.evaluator.transport import protocol
from egg.evaluator.trial.connection import COPY_SECONDS
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial

TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 3e-2}
USUAL = 2e-3
"""Of the largest element."""
HINT = "leave in attributes what Model.forward leaves there: code around the module reads them"


def run(trial: Trial) -> list[str]:
    """Compare them after one call on both sides; returns their names."""
    names = _left_for_others(trial)
    if not names:
        return []
    case = trial.reference.answer("attributes", trial.reference.draw(), golden=False)
    held = attributes_of(trial.reference.module)
    ours = {name: shown(held[name]) for name in names}
    trial.buffers.place(case)
    trial.ask(case)
    reply = trial.connection.request(protocol.Show(tuple(names)), COPY_SECONDS)
    theirs: dict[str, Shown] = {a.name: (a.shape, a.values) for a in reply.found}
    for name, wanted in ours.items():
        allowed = TOLERANCE.get(getattr(held[name], "dtype", torch.float32), USUAL)
        if wanted is not None and not _alike(theirs.get(name), wanted, allowed):
            what = "has another value" if name in theirs else "is not there"
            raise Refused("state.attributes", f"after a call self.{name} {what} in ModelNew", HINT)
    return names


def _left_for_others(trial: Trial) -> list[str]:
    """Which they are; the reference's module holds afterwards what it held before."""
    module = trial.reference.module
    held = {name: getattr(module, name) for name in trial.reference.leaves}
    try:
        return [name for name in held if _for_others(trial, name)]
    except TaskError:  # of a call with something else in an attribute, which therefore is read
        return []
    finally:
        for name, value in held.items():
            setattr(module, name, value)
        if held and trial.reference.moving:
            trial.connection.restore_weights()


def _for_others(trial: Trial, name: str) -> bool:
    """Whether two calls leave different values, and the answer is the same whatever stood there before."""
    module, inputs = trial.reference.module, trial.reference.draw()
    answers, left = [], []
    for disturb in (False, True):
        if disturb:
            _disturb(module, name)
        answers.append([leaf for _, leaf in outputs_of(trial.reference.run(inputs))])
        left.append(shown(attributes_of(module).get(name)))
    same = all(same_values(a, b) for a, b in zip(*answers, strict=True) if isinstance(a, torch.Tensor))
    trial.reference.run(trial.reference.draw())
    return same and left[0] == left[1] and left[0] != shown(attributes_of(module).get(name))


def _disturb(module: Any, name: str) -> None:
    """Something else where forward left its value."""
    value = getattr(module, name)
    if isinstance(value, torch.Tensor):
        setattr(module, name, torch.full_like(value, 2) - value)
    else:
        setattr(module, name, 2 - value)


def _alike(theirs: Shown | None, ours: Shown, allowed: float) -> bool:
    if theirs is None or theirs[0] != ours[0] or len(theirs[1]) != len(ours[1]):
        return False
    got, wanted = (torch.tensor(values, dtype=torch.float64) for values in (theirs[1], ours[1]))
    size = float(wanted.nan_to_num(0.0, 0.0, 0.0).abs().max()) if len(wanted) else 0.0
    near = (got - wanted).abs() <= allowed * size
    return bool((near | (got == wanted) | (got.isnan() & wanted.isnan())).all())
