"""What forward leaves in the module: buffers as the reference's, parameters as they were.

A norm in training mode moves its running statistics, a module may count its calls. Code that evaluates or
saves the module afterwards finds what forward left there, so it is part of what forward does.

What moves may be off by a thousandth of its largest move. Deep in a network the reference itself may be off
by more: a convolution that uses TF32 passes its error on to the statistics of every norm behind it. Where the
first bound refuses, the reference's own distance from an fp64 run is measured, and four times as much is
allowed, as for outputs (:mod:`egg.evaluator.compare.compare`).
"""

from __future__ import annotations

import secrets
import time

import torch

from egg.evaluator.gates.moved import COUNTER, arrived
from egg.evaluator.reference.answers import same_values
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Notes, Trial

LEAST = 4
"""Calls from the same state; as many more as the level's many calls have in half of their time."""
HINT = "leave in buffers what Model.forward leaves there (running statistics, counters); spare the parameters"


def run(trial: Trial) -> Notes:
    """Calls on both sides from the same state; then everything that the module holds is compared.

    A statistic that stands still from some call on is seen after as many calls as its author chose: so there
    are as many as the time allows, up to a number that is drawn by lot.
    """
    moving = trial.reference.moving
    if moving:
        trial.reference.restore()  # earlier questions may have left NaN or infinity in the buffers
        trial.connection.other_weights()
    before = _state(trial)
    if not trial.connection.names and not moving:
        return {"buffers": []}
    missing = sorted(moving - set(trial.connection.names.values()))
    if any(not name.endswith(COUNTER) for name in missing):
        raise Refused(
            "state.buffers", f"forward moves {', '.join(missing[:5])}, which ModelNew has not", HINT
        )
    calls = 0
    most = max(LEAST, trial.settings.calls - secrets.randbelow(max(1, trial.settings.calls // 4)))
    until = time.perf_counter() + trial.settings.calls_seconds / 2
    while moving and (calls < LEAST or (calls < most and time.perf_counter() < until)):
        calls += 1
        case = trial.reference.answer(
            f"call {calls} from the same state", trial.reference.draw(), golden=False
        )
        trial.buffers.place(case)
        trial.ask(case)
    _compare(trial, before, calls)
    if moving:
        trial.connection.restore_weights()
    return {"buffers": sorted(moving)}


def _compare(trial: Trial, before: dict[str, torch.Tensor], calls: int) -> None:
    """Refuse what is not where the reference left it. Its own errors are measured where something is not."""
    theirs, ours = trial.connection.candidate_state(), _state(trial)
    late: list[str] = []
    for name in trial.connection.names.values():
        if name.endswith(COUNTER) and not same_values(theirs[name], ours[name]):
            trial.warnings.append(f"{name} is not counted as Model counts it")
        elif name not in trial.reference.moving:
            if not same_values(theirs[name], ours[name]):
                raise _refused(name, "was changed by forward", theirs, ours)
        elif not arrived(theirs[name], ours[name], before[name]):
            late.append(name)
    errors = _own_errors(trial, before, calls) if late else {}
    for name in late:
        if not arrived(theirs[name], ours[name], before[name], own_error=errors.get(name, 0.0)):
            raise _refused(name, "is not what Model's forward leaves there", theirs, ours)


def _refused(name: str, what: str, theirs: dict[str, torch.Tensor], ours: dict[str, torch.Tensor]) -> Refused:
    return Refused("state.buffers", f"{name} {what} ({_shown(theirs[name], ours[name])})", HINT)


def _state(trial: Trial) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in trial.reference.module.state_dict().items()}


def _own_errors(trial: Trial, before: dict[str, torch.Tensor], calls: int) -> dict[str, float]:
    """The reference's own distances from exact statistics, after as many calls from the same state."""
    trial.reference.module.load_state_dict(before)
    return trial.reference.left_errors(calls)


def _shown(theirs: torch.Tensor, ours: torch.Tensor) -> str:
    if not ours.numel():
        return "empty"
    wide, own = theirs.double().flatten(), ours.double().flatten()
    alike = (wide == own) | (wide.isnan() & own.isnan())
    at = int((wide - own).abs().nan_to_num(float("inf")).masked_fill(alike, 0.0).argmax())
    got, wanted = (float(t.flatten()[at]) for t in (theirs, ours))
    return f"element {at} is {got:.6g}, expected {wanted:.6g}"
