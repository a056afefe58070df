"""What forward leaves in plain attributes for callers: an auxiliary loss, the load of experts.

Only what forward leaves for others is asked for: attributes of the module, of its parts and in containers
that depend on the inputs, and that its own answers do not depend on. One that its answers do depend on shows
there. A running average is moved by each call, so both sides start from a new instance.

A value may be off by a part of the largest element, and by as large a part of itself: an expert that is
rarely used has a load of its own. Where the second bound refuses, the reference's own error of every element
is measured (:mod:`egg.evaluator.reference.left`), and 32 times that is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from egg.core.errors import TaskError
from egg.evaluator.gates.moved import LEAST, OWN_ERRORS_EACH
from egg.evaluator.reference.answers import same_values
from egg.evaluator.reference.left import own_errors
from egg.evaluator.task.attributes import Shown, attributes_of, held_in, shown
from egg.evaluator.task.program import outputs_of
from egg.evaluator.transport import protocol
from egg.evaluator.trial.connection import COPY_SECONDS
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial

CALLS = 2
MEASURED = 4
"""Calls at which the reference's own errors are measured."""
TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 3e-2}
USUAL = 2e-3
"""Of the largest element, and of each."""
HINT = "leave in attributes what Model.forward leaves there: code around the module reads them"


def run(trial: Trial) -> list[str]:
    """Compare them after a few calls of new instances on both sides; returns their paths."""
    if not trial.reference.leaves:
        return []
    try:
        with _anew(trial):
            names = [name for name in trial.reference.leaves if _for_others(trial, name)]
        if names:
            _compare(trial, names)
    finally:
        if trial.reference.moving:
            trial.connection.restore_weights()
    return names


def _compare(trial: Trial, names: list[str]) -> None:
    with _anew(trial):
        trial.connection.fresh()
        for call in range(CALLS):
            case = trial.reference.answer(f"attributes, call {call}", trial.reference.draw(), golden=False)
            trial.buffers.place(case)
            trial.ask(case)
        held = attributes_of(trial.reference.module)
        ours = {name: shown(held.get(name)) for name in names}
    reply = trial.connection.request(protocol.Show(tuple(names)), COPY_SECONDS)
    theirs: dict[str, Shown] = {a.name: (a.shape, a.values) for a in reply.found}
    errors: dict[str, torch.Tensor] | None = None
    for name, wanted in ours.items():
        allowed = TOLERANCE.get(getattr(held.get(name), "dtype", torch.float32), USUAL)
        if wanted is None or _alike(theirs.get(name), wanted, allowed):
            continue
        if errors is None:
            with _anew(trial):
                errors = own_errors(trial.reference, MEASURED, attributes_of)
        if not _alike(theirs.get(name), wanted, allowed, errors.get(name)):
            what = "has another value" if name in theirs else "is not there"
            raise Refused("state.attributes", f"after {CALLS} calls self.{name} {what} in ModelNew", HINT)


@contextmanager
def _anew(trial: Trial) -> Iterator[None]:
    """Meanwhile the reference's module is one that was never called, with the weights of the other."""
    reference = trial.reference
    usual = reference.module
    reference.module = reference.anew()
    try:
        yield
    finally:
        reference.module = usual


def _for_others(trial: Trial, name: str) -> bool:
    """Whether its value depends on the inputs, and no answer depends on it."""
    module = trial.reference.module
    inputs, others = trial.reference.draw(), trial.reference.draw()
    trial.reference.run(inputs)
    start = attributes_of(module).get(name)
    start = start.clone() if isinstance(start, torch.Tensor) else start
    answers, left = [], []
    for given, before in ((inputs, start), (inputs, _other(start)), (others, start)):
        held = held_in(module).get(name)
        if held is not None:
            held.put(before.clone() if isinstance(before, torch.Tensor) else before)
        try:
            answers.append([leaf for _, leaf in outputs_of(trial.reference.run(given))])
        except TaskError:  # of a call with something else in an attribute, which therefore is read
            return False
        left.append(shown(attributes_of(module).get(name)))
    same = all(same_values(a, b) for a, b in zip(*answers[:2], strict=True) if isinstance(a, torch.Tensor))
    return same and left[0] != left[2]


def _other(value: Any) -> Any:
    """Something else of the same form."""
    if isinstance(value, torch.Tensor):
        return ~value if value.dtype is torch.bool else torch.full_like(value, 2) - value
    return None if value is None else 2 - value


def _alike(theirs: Shown | None, ours: Shown, allowed: float, errors: torch.Tensor | None = None) -> bool:
    if theirs is None or theirs[0] != ours[0] or len(theirs[1]) != len(ours[1]):
        return False
    got, wanted = (torch.tensor(values, dtype=torch.float64) for values in (theirs[1], ours[1]))
    sizes = wanted.nan_to_num(0.0, 0.0, 0.0).abs()
    each = allowed * sizes + LEAST
    if errors is not None and errors.numel() >= len(sizes):
        each += OWN_ERRORS_EACH * errors.reshape(-1)[: len(sizes)].to(each)
    whole = allowed * sizes.max() if len(sizes) else 0.0
    near = ((got - wanted).abs() <= each) & ((got - wanted).abs() <= whole)
    return bool((near | (got == wanted) | (got.isnan() & wanted.isnan())).all())
