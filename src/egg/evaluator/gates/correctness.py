"""Correctness: secret seeds on the timed shapes, other distributions, re-randomised weights.

Then, beside the task's own distribution, what its generator never makes
(:mod:`~egg.evaluator.gates.beyond`, :mod:`~egg.evaluator.gates.unusual`). Every question is
drawn after the candidate was loaded, so nothing about it could be known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from egg.core.errors import TaskError
from egg.evaluator.gates import beyond, left, under_grad, unsaved, unusual
from egg.evaluator.process.handle import Fault
from egg.evaluator.reference.answers import finite_share
from egg.evaluator.reference.case import Case
from egg.evaluator.transport.protocol import Options
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Notes, Trial


def run(trial: Trial) -> Notes:
    skipped: list[str] = []
    trial.connection.restore_weights()
    trial.level()
    for index in range(trial.settings.seeds):
        examine(trial, trial.reference.case(f"seed {index + 1}"))
    left.untouched(trial)
    for index, name in enumerate(trial.settings.distributions):
        if index < trial.settings.reweighed:
            trial.connection.reweigh()
        label = f"{name} inputs, other weights"
        if not examined_as(trial, name, label, poison=index % 2 == 0):
            skipped.append(name)
    trial.connection.restore_weights()
    found = {
        "without_answer": skipped,
        "grad_mode": under_grad.run(trial),
        "unvaried": beyond.redrawn(trial, examine),
        "unusual": unusual.run(trial),
        "not_numbers": beyond.not_numbers(trial),
        "unsaved": unsaved.run(trial),
    }
    if trial.reference.moving:
        trial.connection.restore_weights()  # an infinity must not stay in running statistics
    return {"checks": trial.checks.worst.checks, **found}


def examined_as(trial: Trial, distribution: str, label: str, *, poison: bool = True) -> bool:
    """Put a question of another distribution, if it has an answer; it is gone before the next is drawn.

    A program that computes indices from its inputs may raise where those are none that its task draws. Fresh
    memory holds NaN or zeros: an answer that depends on it is wrong in one of the two.
    """
    try:
        case = trial.reference.case(label, distribution)
    except TaskError:
        trial.level()
        return False
    if meaningful(trial, case.outputs):
        examine(trial, case, poison=poison)
        return True
    trial.level()
    return False


def examine(trial: Trial, case: Case, *, poison: bool = True, keep: bool = False) -> Mapping[str, int]:
    """Put one question, and check everything about the answer; returns what was launched."""
    index = trial.next_set()
    trial.buffers.place(case, index)
    reply = trial.ask(case, index, Options(traced=True, poison=poison, keep=keep))
    try:
        trial.check(case, reply, index)
    except Refused as wrong:
        raise _remembered(trial, case, wrong) from None
    trial.checks.check_inputs_unchanged(case, index)
    trial.checks.check_apart(case, reply.aliases)
    return reply.launched


def _remembered(trial: Trial, case: Case, wrong: Refused) -> Refused:
    """Tell a wrong answer from a stale one: a new instance that gets it right had nothing to remember."""
    try:
        trial.connection.fresh()
        trial.buffers.place(case)
        trial.check(case, trial.ask(case, options=Options(traced=True)))
    except (Refused, Fault):
        return wrong
    return Refused(
        "state.stale",
        f"a new instance answers rightly, one that was called before does not: {wrong.evidence}",
        "compute from the inputs' and the weights' values on every call; a packed weight is to be keyed on "
        "its `_version`, and nothing derived from inputs may be kept",
        facts=wrong.facts,
    )


def meaningful(trial: Trial, outputs: list[tuple[str, Any]]) -> bool:
    """Whether the reference has an answer to speak of: half as much of it finite as for its own inputs."""
    return 2 * finite_share(outputs) >= trial.reference.finite_share
