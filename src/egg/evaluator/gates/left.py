"""What forward leaves in the module: buffers as the reference's, parameters as they were.

A norm in training mode moves its running statistics, a module may count its calls. Code that evaluates or
saves the module afterwards finds what forward left there, so it is part of what forward does.

What moves may be off by a thousandth of its largest move, and each element by a thousandth of its own: a
small channel has statistics of its own. Deep in a network the reference itself may be off by more: a
convolution that uses TF32 passes its error on to the statistics of every norm behind it, and a mean of nearly
zero is what rounding leaves of it. Where these bounds refuse, the reference's own distance from an exacter
run is measured (:mod:`egg.evaluator.reference.left`): four times the largest is allowed, and to each element
32 times its own, or what is usual for a channel of its scale: rounding of the weights moves the mean of every
channel by an amount that happens to be small in some, and a library may use TF32 in some layers only.

What forward only moves (a delay line, a running maximum) no order of sums explains: it is compared exactly.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection
from typing import Any

import torch

from egg.evaluator.compare import copies
from egg.evaluator.gates import carried
from egg.evaluator.gates.exactness import check_alone, inexact_beside
from egg.evaluator.gates.moved import (
    COUNTER,
    arrived,
    is_counter,
    parts,
    usual,
    usual_nans,
)
from egg.evaluator.reference.answers import same_bytes, same_values
from egg.evaluator.reference.case import Case
from egg.evaluator.reference.left import Exactly, own_errors
from egg.evaluator.reference.moved_only import moved_only
from egg.evaluator.tensors.reals import as_reals, narrowed
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Notes, Trial

LEAST = 4
"""Calls from the same state; as many more as the level's many calls have in half of their time."""
AS_BUILT = 2
"""Calls from the state as built."""
HINT = "leave in buffers what Model.forward leaves there (running statistics, counters); spare the parameters"


def run(trial: Trial) -> Notes:
    """Calls on both sides from the same state; then everything that the module holds is compared.

    A statistic that stands still from some call on is seen after as many calls as its author chose: so there
    are as many as the time allows, up to a number that is drawn by lot. They begin with other weights, beside
    which the share of a small channel may not show; so a few calls are made from the state as built, too.
    """
    moving = trial.reference.moving
    if not trial.connection.names and not moving:
        return {"buffers": []}
    missing = sorted(moving - set(trial.connection.names.values()))
    if any(not name.endswith(COUNTER) for name in missing):
        raise Refused(
            "state.buffers", f"forward moves {', '.join(missing[:5])}, which ModelNew has not", HINT
        )
    if not moving:
        compare_state(trial, reference_state(trial), 0)
        return {"buffers": []}
    trial.connection.restore_weights()  # earlier questions may have left NaN or infinity in the buffers
    only = moved_only(trial.reference)
    *_, only = _called(trial, AS_BUILT, time.perf_counter(), only, in_full=True)
    trial.connection.restore_weights()
    trial.connection.other_weights()
    most = max(LEAST, trial.settings.calls - secrets.randbelow(max(1, trial.settings.calls // 4)))
    first, inputs, _ = _called(trial, most, time.perf_counter() + trial.settings.calls_seconds / 2, only)
    states = carried.run(trial, first, inputs)
    trial.connection.restore_weights()
    return {"buffers": sorted(moving), "states": states}


def one_call(trial: Trial, ask: Callable[[Case], object], *, states: bool) -> None:
    """One call by ``ask`` from the state that both sides have: what it leaves is compared in full. Then calls
    from a few other ``states``."""
    only = moved_only(trial.reference)
    before, inputs, _ = _called(trial, 1, time.perf_counter(), only, in_full=True, ask=ask)
    if states:
        carried.run(trial, before, inputs, brief=True)


def _called(
    trial: Trial,
    most: int,
    until: float,
    only: Collection[str],
    *,
    in_full: bool = False,
    ask: Callable[[Case], object] | None = None,
) -> tuple[dict[str, torch.Tensor], list[Any], Collection[str]]:
    """Up to so many calls from the state that both sides have; what they leave is compared.

    Where it is ``in_full``, elements that they leave alone are compared by their bits. Returns the state
    before them, the inputs of the last call, and those of the buffers that are ``only`` moved which hold in
    fp64 what they hold here: others are rounded on the way, and a file may leave that out.
    """
    before, calls, inputs = reference_state(trial), 0, []
    exact = Exactly(trial.reference) if in_full else None
    while calls < most and (calls < LEAST or time.perf_counter() < until):
        calls += 1
        inputs, seed = trial.reference.draw(), secrets.randbits(31)
        label = f"call {calls} from the same state"
        if exact is not None:
            exact.call(inputs, seed)
        case = trial.reference.answer(label, inputs, golden=ask is not None, seed=seed)
        if ask is not None:
            ask(case)
            continue
        trial.buffers.place(case)
        trial.ask(case)
    compare_state(trial, before, calls)
    theirs, ours = trial.connection.candidate_state(), reference_state(trial)
    if exact is not None:
        wide = exact.state()
        only = [n for n in only if n not in wide or _as_held(wide[n], parts(ours[n]))]
        for name in theirs:
            check_alone(name, before, theirs, ours, wide)
            if inexact_beside(trial.reference, name, theirs, ours, wide):
                raise _refused(name, "is less exact than what Model's forward leaves there", theirs, ours)
    for name in theirs:
        if name in only and copies.compare([parts(held[name]) for held in (theirs, ours, ours)]):
            raise _refused(name, "is not what Model's forward moves there", theirs, ours)
    return before, inputs, only


def _as_held(exact: torch.Tensor, ours: torch.Tensor) -> bool:
    return same_values(narrowed(exact, ours.dtype), ours)


def untouched(trial: Trial) -> None:
    """Refuse a file that has written to what the reference leaves alone, before other weights replace it."""
    if not trial.connection.names:
        return
    theirs, ours = trial.connection.candidate_state(), trial.reference.module.state_dict()
    for name in trial.connection.names.values():
        still = name not in trial.reference.moving and not is_counter(name, ours[name])
        if still and not same_bytes(theirs[name], ours[name]):
            raise _refused(name, "was changed by forward", theirs, ours)
    trial.buffers.lay_weights(ours)  # where new instances find them


def compare_state(trial: Trial, before: dict[str, torch.Tensor], calls: int) -> None:
    """Refuse what is not where the reference left it. Its own errors are measured where something is not."""
    theirs, ours = trial.connection.candidate_state(), reference_state(trial)
    late: list[str] = []
    for name in trial.connection.names.values():
        if is_counter(name, ours[name]) and not same_values(theirs[name], ours[name]):
            if not before[name] <= theirs[name] <= ours[name]:
                raise _refused(name, "counts what Model's forward does not", theirs, ours)
            trial.warnings.append(f"{name} is not counted as Model counts it")
        elif name not in trial.reference.moving:
            if not same_bytes(theirs[name], ours[name]):
                raise _refused(name, "was changed by forward", theirs, ours)
        elif not arrived(theirs[name], ours[name], before[name]):
            late.append(name)
        if name in trial.reference.moving and not usual_nans(theirs[name], ours[name]):
            raise _refused(name, "holds NaN with bits that no arithmetic sets", theirs, ours)
    errors = _own_errors(trial, before, calls) if late else {}
    for name in late:
        if not arrived(theirs[name], ours[name], before[name], errors=errors.get(name)):
            raise _refused(name, "is not what Model's forward leaves there", theirs, ours)


def _refused(name: str, what: str, theirs: dict[str, torch.Tensor], ours: dict[str, torch.Tensor]) -> Refused:
    return Refused("state.buffers", f"{name} {what} ({_shown(theirs[name], ours[name])})", HINT)


def reference_state(trial: Trial) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in trial.reference.module.state_dict().items()}


def _own_errors(trial: Trial, before: dict[str, torch.Tensor], calls: int) -> dict[str, torch.Tensor]:
    """The reference's own distances from exact statistics, after as many calls from the same state."""
    trial.reference.module.load_state_dict(before)
    found = own_errors(trial.reference, calls, lambda module: module.state_dict())
    return usual(found, trial.reference.module.state_dict())


def _shown(theirs: torch.Tensor, ours: torch.Tensor) -> str:
    if not ours.numel():
        return "empty"
    if same_values(theirs, ours):
        return "in the signs of zeros or the bits of NaN"
    theirs, ours = as_reals(theirs.resolve_conj()), as_reals(ours.resolve_conj())
    wide, own = theirs.double().flatten(), ours.double().flatten()
    alike = (wide == own) | (wide.isnan() & own.isnan())
    off = (wide - own).abs() / torch.maximum(wide.abs(), own.abs())  # as a part of itself: it may be small
    at = int(off.nan_to_num(float("inf")).masked_fill(alike, 0.0).argmax())
    got, wanted = (float(t.flatten()[at]) for t in (theirs, ours))
    return f"element {at} is {got:.6g}, expected {wanted:.6g}"
