"""What forward leaves in plain attributes for its callers: an auxiliary loss, the load of experts, a count.

Only what forward leaves for others is asked for (:mod:`egg.evaluator.reference.for_callers`): attributes of
the module, of its parts, in containers and objects, and buffers that are not persistent. A running average is
moved by each call, so both sides start from a new instance.

A value may be off by what another order of summation may change, of itself and of the largest element: an
expert that is rarely used has a load of its own; and by 32 times the reference's own error of every element,
measured beside an exacter run (:mod:`egg.evaluator.reference.left`). Where there is no such run 2e-3 is
allowed, or what the type needs.
"""

from __future__ import annotations

import secrets
from math import prod

import torch

from egg.evaluator.gates.moved import LEAST, OWN_ERRORS_EACH, another_order
from egg.evaluator.reference.for_callers import CALLS, anew, for_callers
from egg.evaluator.reference.left import measured_exactly, own_errors
from egg.evaluator.task.attributes import Shown, attributes_of, chosen, shown, whole
from egg.evaluator.transport import protocol
from egg.evaluator.trial.connection import COPY_SECONDS
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial

MEASURED = 4
"""Calls at which the reference's own errors are measured."""
TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 3e-2}
USUAL = 2e-3
"""Of the largest element, and of each, where no run is exacter than the reference."""
HINT = "leave in attributes what Model.forward leaves there: code around the module reads them"


def run(trial: Trial) -> list[str]:
    """Compare them after a few calls of new instances on both sides; returns their paths.

    What roundings decide (how many tokens an expert has) may be another at some draw. It is asked for once
    more.
    """
    if not trial.reference.leaves:
        return []
    try:
        names = for_callers(trial.reference)
        wrong = _wrong(trial, names) if names else []
        wrong = _wrong(trial, wrong) if wrong else []
        for name in wrong:
            evidence = f"after {CALLS} calls self.{name} is not there in ModelNew, or has another value"
            raise Refused("state.attributes", evidence, HINT)
    finally:
        if trial.reference.moving:
            trial.connection.restore_weights()
    return names


def _wrong(trial: Trial, names: list[str]) -> list[str]:
    """Those that ModelNew leaves otherwise."""
    seed = secrets.randbits(31)
    with anew(trial.reference):
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
    found: list[str] = []
    for name, wanted in ours.items():
        exact = whole(held.get(name))
        allowed = 0.0 if exact else _allowed(trial, getattr(held.get(name), "dtype", torch.float32))
        if wanted is None or _alike(theirs.get(name), wanted, allowed):
            continue
        if not exact and errors is None:
            with anew(trial.reference):
                errors = own_errors(trial.reference, MEASURED, attributes_of)
        own = None if errors is None or exact else _of_shown(errors.get(name), wanted, seed)
        if not _alike(theirs.get(name), wanted, allowed, own):
            found.append(name)
    return found


def _allowed(trial: Trial, dtype: torch.dtype) -> float:
    """Of the largest element, and of each."""
    if measured_exactly(trial.reference):
        order = another_order(trial.reference, dtype)
        return order.max_factor * order.roundoff
    return TOLERANCE.get(dtype, USUAL)


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
    own = torch.zeros_like(sizes) if errors is None else OWN_ERRORS_EACH * errors.to(sizes)
    each = allowed * sizes + own + LEAST
    largest = allowed * sizes.max() + own.max() if len(sizes) else 0.0
    near = ((got - wanted).abs() <= each) & ((got - wanted).abs() <= largest)
    return bool((near | (got == wanted) | (got.isnan() & wanted.isnan())).all())
