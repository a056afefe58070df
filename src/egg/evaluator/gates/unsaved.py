"""A plan under other values in buffers that no ``state_dict`` holds: tables, frequencies, scales.

A module makes them when it is built, and code outside may change them since: the guard of a plan compares the
forms of buffers and no values. So a plan must read them. Masks of two values are part of the program, as they
are among the buffers that are saved.
"""

from __future__ import annotations

import secrets

import torch

from egg.core.errors import TaskError
from egg.evaluator.reference.answers import finite_share, same_values
from egg.evaluator.task.attributes import unsaved_of
from egg.evaluator.task.distributions import rescaled
from egg.evaluator.trial.trial import Trial

HINT = (
    "a plan compares no values of buffers, so its kernels must read them: keep a buffer of the same name and "
    "form in ModelNew, and load from that what the task's forward reads there; or judge the file itself"
)


def run(trial: Trial) -> str:
    """Returns what was done, in words."""
    held = unsaved_of(trial.reference.module)
    if not trial.plan or not held:
        return "not asked"
    before = {name: value.clone() for name, value in held.items()}
    try:
        for value in held.values():
            value.copy_(rescaled(value, secrets.randbits(48)))
        return _asked(trial, before)
    finally:
        for name, value in held.items():
            value.copy_(before[name])
        trial.connection.share_unsaved()


def _asked(trial: Trial, before: dict[str, torch.Tensor]) -> str:
    """One question, where the reference has an answer to it."""
    reference = trial.reference
    others = [
        name for name, value in unsaved_of(reference.module).items() if not same_values(value, before[name])
    ]
    if not others:
        return "none but masks and integers"
    try:
        case = reference.answer("other values in buffers that are not saved", reference.draw(), own=False)
    except TaskError:
        return "without an answer"
    if 2 * finite_share(case.outputs) < reference.finite_share:
        return "without an answer"
    trial.connection.share_unsaved()
    trial.buffers.place(case)
    reply = trial.ask(case)
    what = f"{', '.join(others[:5])} had other values, which no state_dict holds"
    trial.expect(case, reply, "correctness.unsaved", what, HINT)
    return f"{len(others)} changed"
