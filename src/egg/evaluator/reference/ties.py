"""Other right answers to a question: the reference's, with equal elements in another order.

Where PyTorch leaves open which of equal elements ``topk`` or ``sort`` names first
(:mod:`~egg.evaluator.reference.ordering`), the reference's own answer is one of several. So a refused answer
is held to others as well, each as a whole: all outputs, by the ordinary rule, with one order. Tried
are the first of equal elements first everywhere, the last first everywhere, and where two operators met equal
elements each of the two beside PyTorch's own order. An order that a candidate tells, because the indices are
an output, is taken from there where it is one: every element at most once, with the values that are due.

The exact run chooses what the reference chose: elements that 16 bits make equal are not equal there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch

from egg.core.errors import MachineError, TaskError
from egg.evaluator.reference.answers import differ, same_values
from egg.evaluator.reference.case import Case
from egg.evaluator.reference.ordering import Choice, Order, Ordered, Way
from egg.evaluator.reference.reference import Reference
from egg.evaluator.reference.yardstick import Draws, Yardstick, converted
from egg.evaluator.task.program import outputs_of

INDICES = (torch.int64, torch.int32)
MIXED = 2
"""Operators with equal elements of which every combination of orders is looked at."""


@dataclass(frozen=True)
class _Run:
    """The reference's answers with ties broken in some way."""

    outputs: list[tuple[str, Any]]
    choices: list[Choice]

    @property
    def tied(self) -> list[int]:
        return [at for at, choice in enumerate(self.choices) if choice.ties]


def variants(
    reference: Reference, case: Case, delivered: Sequence[torch.Tensor | None] = ()
) -> Iterator[Case]:
    """The question with each other answer to it; ``delivered`` are the candidate's.

    None where the module's state moves: a run from another state answers something else.
    """
    if reference.leaves or reference.moving or not case.golden:
        return
    own = _run(reference, case, (Order.OWN,))
    if own is None or not own.tied or not _repeated(own, case):
        return
    seen: list[_Run] = []
    for ways in _ways(own, case, delivered):
        found = _run(reference, case, ways)
        if found is None or any(_same(found, other) for other in seen):
            continue
        seen.append(found)
        other = _measured(reference, case, found)
        if other is not None:
            yield other


def _run(reference: Reference, case: Case, ways: Sequence[Way]) -> _Run | None:
    def forward() -> _Run:
        with reference.spared(), Ordered(ways) as noted:
            result = reference.measured(reference.module, case.inputs, Yardstick.ITSELF, None, case.seed)
        return _Run(outputs_of(result), noted.choices)

    try:
        return reference.with_room(forward)
    except (TaskError, MachineError):
        return None


def _measured(reference: Reference, case: Case, found: _Run) -> Case | None:
    """With the answers of an exact run that chooses the same."""
    drawn = case.draws or Draws()
    draws = Draws(drawn.drawn, found.choices)
    if case.yardstick is Yardstick.ITSELF:
        return replace(case, outputs=found.outputs, golden=found.outputs)

    def forward() -> list[tuple[str, Any]]:
        module, inputs = converted(reference.module, case.inputs, case.yardstick)
        return outputs_of(reference.measured(module, inputs, case.yardstick, draws, case.seed))

    try:
        golden = reference.with_room(forward)
    except (TaskError, MachineError):
        return None
    return replace(case, outputs=found.outputs, golden=golden, draws=draws)


def _ways(own: _Run, case: Case, delivered: Sequence[torch.Tensor | None]) -> Iterator[tuple[Way, ...]]:
    """Orders to try, those that answer most candidates first."""
    told = {
        at: indices for at in own.tied if (indices := _told(own.choices[at], case, delivered)) is not None
    }
    count = len(own.choices)
    for order in (Order.FIRST, Order.LAST, Order.OWN):
        yield (order,)
        if told:
            yield tuple(told.get(at, order) for at in range(count + 1))
    if 1 < len(own.tied) <= MIXED:
        for orders in product(Order, repeat=len(own.tied)):
            chosen = dict(zip(own.tied, orders, strict=True))
            yield tuple(chosen.get(at, orders[-1]) for at in range(count + 1))


def _told(choice: Choice, case: Case, delivered: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    """The candidate's own indices, where an output is nothing but these."""
    for (_, leaf), got in zip(case.outputs, delivered, strict=False):
        if got is None or not isinstance(leaf, torch.Tensor) or leaf.dtype not in INDICES:
            continue
        if torch.equal(leaf.reshape(-1).long(), choice.indices.reshape(-1)):
            return got.reshape(choice.indices.shape).long()
    return None


def _repeated(own: _Run, case: Case) -> bool:
    """Whether the run is the one that answered the question, but for what atomics leave open."""
    pairs = zip(own.outputs, case.outputs, strict=True)
    return len(own.outputs) == len(case.outputs) and not any(differ(a, b) for (_, a), (_, b) in pairs)


def _same(one: _Run, other: _Run) -> bool:
    chosen = zip(one.choices, other.choices, strict=False)
    return len(one.choices) == len(other.choices) and all(
        same_values(a.indices, b.indices) for a, b in chosen
    )
