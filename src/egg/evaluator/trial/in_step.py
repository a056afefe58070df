"""The reference at the state of a session, where answers follow from what earlier calls left.

Elsewhere one call of the reference answers whatever call of the candidate had the same inputs. Where a call's
answer depends on those before it, the reference makes each of them as well: it stands where they lead by the
task's own rule, in buffers of its own, and nothing that the candidate keeps is believed. Calls that only one
side made are made up for by giving both the state of the reference (:meth:`Trial.level`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from egg.evaluator.reference.case import Case
from egg.evaluator.task.seeds import FORWARD_SEED
from egg.evaluator.trial.trial import Trial


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
