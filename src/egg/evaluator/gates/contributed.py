"""Own kernels must compute: to carry values to a library and back is no rewrite.

Where PyTorch's operators may be used, some calls on different inputs show whether anything else computed
(:mod:`egg.evaluator.operators.contributed`). A program may itself scale, clip or move: a kernel that takes
over such an operation carries rightly. Nothing is asked where the reference has more operations of such a
kind than the library ran.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import Protocol

from egg.core.policy import LibraryCalls
from egg.evaluator.gates import needed
from egg.evaluator.operators.parts import CLIPPING, LINEAR, MASK, SUM
from egg.evaluator.process.handle import Fault
from egg.evaluator.reference.case import Case
from egg.evaluator.transport import protocol
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial
from egg.evaluator.trial.watch import CASTING, CASTS, FIG_LEAF, GATHERING, by_family, listed

DRAWS, MOST_CALLS = 6, 18
"""Calls that ran the same operators, and calls that are made to have as many."""

MOVING = GATHERING | CASTING


class Inventory(Protocol):
    """The reference's operations that compute, those that move, and what they do inside."""

    @property
    def compute(self) -> Mapping[str, int]: ...
    @property
    def moves(self) -> Mapping[str, int]: ...
    @property
    def parts(self) -> Mapping[str, int]: ...


class TakenOver(Enum):
    """What the reference has more of than the library ran, and kernels may carry for."""

    NOTHING = "nothing"
    SUMS = "sums"
    OTHERS = "others"


def check(trial: Trial, record: protocol.Record, reference: Inventory) -> None:
    forbidden = trial.policy.library_calls is LibraryCalls.FORBID
    taken_over = _taken_over(reference, record)
    if forbidden or not record.ops or taken_over is TakenOver.OTHERS:
        return
    if taken_over is TakenOver.SUMS:
        needed.check_equal(trial, record, reference.compute)
        return
    found, cases = protocol.Contribution(0, True), list[Case]()
    for call in range(MOST_CALLS):
        case = trial.reference.case("whose work it is", golden=False)
        cases += [case] if needed.is_small(case) else []
        trial.buffers.place(case)
        try:
            trial.ask(case, options=protocol.Options(follow=trial.sketch_seed), watched=False)
            if call + 1 >= DRAWS:
                last = call + 1 == MOST_CALLS
                found = trial.connection.request(protocol.Contributes(DRAWS, aligned=last))
        except Fault as fault:
            trial.survive(fault)
            return
        if found.draws >= DRAWS:
            break
    if not found.own:
        ran = listed(Counter(record.ops) + Counter(record.moves))
        raise Refused(
            "provenance.fig_leaf",
            f"own kernels only carry values to and from PyTorch's operators: {ran}",
            FIG_LEAF,
        )
    if found.draws >= DRAWS:
        needed.check_carried(trial, record, reference.compute, cases)


def _taken_over(reference: Inventory, record: protocol.Record) -> TakenOver:
    """Whether the reference has more operations of a kind that carry than the library ran.

    What the library does inside its operators, and the reference does not, counts as run. A mask stands for
    a clip where one is missing, else for a sum.
    """
    wanted, ran = by_family(reference.compute), by_family(record.ops)
    inside = Counter(record.parts) - Counter(reference.parts)
    clips = max(0, _of(wanted, CLIPPING) - _of(ran, CLIPPING))
    sums = max(0, _of(wanted, LINEAR) - _of(ran, LINEAR) - inside[SUM])
    moves = sum(record.moves.values()) + sum(n for name, n in record.copies.items() if name not in CASTS)
    moved = _of(reference.compute, MOVING) + sum(reference.moves.values())
    if clips > inside[MASK] or moved > _of(ran, MOVING) + moves:
        return TakenOver.OTHERS
    return TakenOver.SUMS if clips + sums > inside[MASK] else TakenOver.NOTHING


def _of(ops: Mapping[str, int], kind: frozenset[str]) -> int:
    return sum(count for name, count in ops.items() if name.rstrip("_") in kind or name in kind)
