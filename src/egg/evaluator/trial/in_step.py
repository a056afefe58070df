"""Two sides at one state, where answers follow from what earlier calls left: a count of steps, an average.

Elsewhere one call of the reference answers whatever call of the candidate had the same inputs. Where a call's
answer depends on those before it, the reference makes each of them as well: it stands where they lead by the
task's own rule, in buffers of its own, and nothing that the candidate keeps is believed. Calls that only one
side made are made up for by giving both the state of the reference.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from egg.core.errors import TaskError
from egg.evaluator.reference.answers import same_values
from egg.evaluator.reference.case import Case
from egg.evaluator.reference.reference import Reference
from egg.evaluator.task.program import outputs_of
from egg.evaluator.task.seeds import FORWARD_SEED

if TYPE_CHECKING:
    from egg.evaluator.trial.trial import Trial

CALLS = 3
"""Of the reference, behind which the same inputs may have another answer."""


def follows(reference: Reference) -> bool:
    """Whether the same inputs have another answer behind some calls, or where a buffer that calls move holds
    other numbers."""
    if not reference.moving and not reference.leaves:
        return False
    inputs = reference.draw()
    with reference.spared():
        before = _answer(reference, inputs)
    try:
        with reference.spared():
            for _ in range(CALLS):
                reference.run(reference.draw(), secrets.randbits(31))
            behind = _answer(reference, inputs)
        with reference.spared():
            _put_elsewhere(reference)
            elsewhere = _answer(reference, inputs)
    except TaskError:  # from such a state there is none
        return True
    return not (_same(before, behind) and _same(before, elsewhere))


def level(trial: Trial) -> None:
    """Give both sides the reference's state, where answers follow from it; plain attributes (a number that
    counts calls) begin anew on both."""
    if not trial.follows:
        return
    if trial.reference.leaves:
        trial.reference.module = trial.reference.anew()
        trial.connection.fresh()
    trial.connection.share_weights()


def walked(
    trial: Trial, cases: Sequence[Case], moves: Sequence[Any], seeds: Sequence[int], wanted: Collection[int]
) -> Iterator[int]:
    """The numbers of the ``wanted`` calls of a session that went over ``cases`` in turn, in order.

    Where each is given out, its case has the inputs of that call, and the reference stands where the calls
    before it lead, if answers follow from that. What is done to its state meanwhile is taken back.
    """
    for call, change in enumerate(moves):
        if not trial.follows and call not in wanted:
            continue
        case = cases[call % len(cases)]
        trial.buffers.reserve.follow(case.tensors, change)
        if call in wanted:
            with trial.reference.spared() if trial.follows else nullcontext():
                yield call
        if trial.follows:
            trial.reference.run(case.inputs, seeds[call] if seeds else FORWARD_SEED)


def _answer(reference: Reference, inputs: list[Any]) -> list[Any]:
    """Apart from the module's own memory."""
    leaves = (leaf for _, leaf in outputs_of(reference.run(inputs)))
    return [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


@torch.no_grad()
def _put_elsewhere(reference: Reference) -> None:
    """What no few calls show: an average that an answer takes up later."""
    held = reference.module.state_dict()
    for name in reference.moving:
        value = held[name]
        if value.is_floating_point() or value.is_complex():
            value.mul_(0.75).add_(0.5)


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(
        same_values(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(one, other, strict=True)
    )
