"""What forward leaves in plain attributes for callers: an auxiliary loss, the load of experts.

Only what forward leaves for others is asked for: attributes of the module, of its parts, in containers and
objects, and buffers that are not persistent, that depend on the inputs, and that its own answers do not
depend on. One that its answers do depend on shows
there. A running average is moved by each call, so both sides start from a new instance.

A value may be off by a part of the largest element, and by as large a part of itself: an expert that is
rarely used has a load of its own. Where the second bound refuses, the reference's own error of every element
is measured (:mod:`egg.evaluator.reference.left`), and 32 times that is allowed.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import torch

from egg.core.errors import TaskError
from egg.evaluator.gates.moved import LEAST, OWN_ERRORS_EACH
from egg.evaluator.reference.answers import same_values
from egg.evaluator.reference.left import own_errors
from egg.evaluator.task.attributes import Shown, attributes_of, chosen, held_in, shown, shown_in, whole
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
    """Compare them after a few calls of new instances on both sides; returns their paths.

    An integer that roundings decide (how many tokens an expert has) may be another one at some draw. It is
    asked for once more.
    """
    if not trial.reference.leaves:
        return []
    try:
        names = _for_others(trial)
        wrong = _wrong(trial, names) if names else {}
        if wrong and not any(wrong.values()):
            wrong = _wrong(trial, list(wrong))
        for name in wrong:
            evidence = f"after {CALLS} calls self.{name} is not there in ModelNew, or has another value"
            raise Refused("state.attributes", evidence, HINT)
    finally:
        if trial.reference.moving:
            trial.connection.restore_weights()
    return names


def _wrong(trial: Trial, names: list[str]) -> dict[str, bool]:
    """Those that ModelNew leaves otherwise, and whether no rounding is the reason."""
    seed = secrets.randbits(31)
    with _anew(trial):
        trial.connection.fresh()
        for call in range(CALLS):
            case = trial.reference.answer(f"attributes, call {call}", trial.reference.draw(), golden=False)
            trial.buffers.place(case)
            trial.ask(case)
        held = attributes_of(trial.reference.module)
        ours = {name: shown(held.get(name), seed) for name in names}
    reply = trial.connection.request(protocol.Show(tuple(names), seed), COPY_SECONDS)
    theirs: dict[str, Shown] = {a.name: (a.shape, a.values) for a in reply.found}
    errors: dict[str, torch.Tensor] | None = None
    found: dict[str, bool] = {}
    for name, wanted in ours.items():
        exact = whole(held.get(name))
        allowed = 0.0 if exact else TOLERANCE.get(getattr(held.get(name), "dtype", torch.float32), USUAL)
        if wanted is None or _alike(theirs.get(name), wanted, allowed):
            continue
        if exact:
            found[name] = name not in theirs
            continue
        if errors is None:
            with _anew(trial):
                errors = own_errors(trial.reference, MEASURED, attributes_of)
        own = _of_shown(errors.get(name), wanted, seed)
        found |= {} if _alike(theirs.get(name), wanted, allowed, own) else {name: True}
    return found


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


def _for_others(trial: Trial) -> list[str]:
    """Attributes whose values follow from the inputs (no clock does), and on which no answer depends."""
    inputs, others = trial.reference.draw(), trial.reference.draw()
    one, again, other = (_left_behind(trial, given) for given in (inputs, inputs, others))
    with _anew(trial):
        return [
            name
            for name in trial.reference.leaves
            if (value := one.get(name)) is not None
            and value != other.get(name)
            and _alike(again.get(name), value, USUAL)
            and not _read(trial, name)
        ]


def _left_behind(trial: Trial, inputs: list[Any]) -> dict[str, Shown | None]:
    """By the first call of a new instance."""
    with _anew(trial):
        trial.reference.run(inputs)
        return shown_in(trial.reference.module)


def _read(trial: Trial, name: str) -> bool:
    """Whether answers depend on it."""
    module, inputs = trial.reference.module, trial.reference.draw()
    trial.reference.run(inputs)
    start = attributes_of(module).get(name)
    start = start.clone() if isinstance(start, torch.Tensor) else start
    answers = []
    for before in (start, _other(start)):
        held = held_in(module).get(name)
        if held is not None:
            held.put(before.clone() if isinstance(before, torch.Tensor) else before)
        try:
            answers.append([leaf for _, leaf in outputs_of(trial.reference.run(inputs))])
        except TaskError:  # of a call with something else in an attribute, which therefore is read
            return True
    pairs = zip(*answers, strict=True)
    return not all(same_values(a, b) for a, b in pairs if isinstance(a, torch.Tensor))


def _other(value: Any) -> Any:
    """Something else of the same form."""
    if isinstance(value, torch.Tensor):
        return ~value if value.dtype is torch.bool else torch.full_like(value, 2) - value
    return None if value is None else 2 - value


def _of_shown(errors: torch.Tensor | None, wanted: Shown, seed: int) -> torch.Tensor | None:
    """The reference's own errors of the elements that are looked at."""
    shape, values = wanted
    if errors is None or not values:
        return None
    count = prod(shape or ())
    found = chosen(errors.reshape(count, -1), seed).reshape(-1)
    return found if len(found) == len(values) else None


def _alike(theirs: Shown | None, ours: Shown, allowed: float, errors: torch.Tensor | None = None) -> bool:
    if theirs is None or theirs[0] != ours[0] or len(theirs[1]) != len(ours[1]):
        return False
    got, wanted = (torch.tensor(values, dtype=torch.float64) for values in (theirs[1], ours[1]))
    sizes = wanted.nan_to_num(0.0, 0.0, 0.0).abs()
    each = allowed * sizes + LEAST
    if errors is not None:
        each += OWN_ERRORS_EACH * errors.to(each)
    largest = allowed * sizes.max() if len(sizes) else 0.0
    near = ((got - wanted).abs() <= each) & ((got - wanted).abs() <= largest)
    return bool((near | (got == wanted) | (got.isnan() & wanted.isnan())).all())
