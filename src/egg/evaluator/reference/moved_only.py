"""Which answers of a task, and which buffers that its calls move, are computed nowhere.

A delay line is such a buffer: what comes out was put in some calls before, and each of its numbers is one
that some call was given. So all buffers that calls move are taken for such ones, and a run shows which of
them hold something else behind it (:mod:`egg.evaluator.reference.copied`). Without these it is asked again,
until no other falls out: what is copied from an average is no number that was given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from egg.core.errors import MachineError, TaskError
from egg.evaluator.reference.answers import inexact
from egg.evaluator.reference.case import Case
from egg.evaluator.reference.copied import Copied
from egg.evaluator.reference.reference import Reference
from egg.evaluator.reference.yardstick import Yardstick, converted
from egg.evaluator.task.attributes import attributes_of, whole
from egg.evaluator.task.program import map_tensors, outputs_of

DRAWS = 3
"""Inputs at which a buffer must be moved only: a branch may compute at others."""
NOTHING: tuple[tuple[bool, ...], frozenset[str]] = (), frozenset()


def copied(reference: Reference, case: Case, position: int) -> bool:
    """Whether an output is computed nowhere; not where that is not known."""
    answers, _ = _found(reference, case.inputs, case.seed)
    return position < len(answers) and answers[position]


def moved_only(reference: Reference) -> frozenset[str]:
    """The buffers of floats whose numbers are all among those that calls were given."""
    found = frozenset(name for name in reference.moving if inexact(reference.initial[name]))
    for seed in range(DRAWS):
        if found:
            found &= _found(reference, reference.draw(), seed)[1]
    return found


def _found(reference: Reference, inputs: list[Any], seed: int) -> tuple[tuple[bool, ...], frozenset[str]]:
    """For each answer whether it is, and the buffers that are; behind a call from the state as it is."""
    held = attributes_of(reference.module)
    if not all(name in held and whole(held[name]) for name in reference.leaves):
        return NOTHING  # a number that an earlier call computed
    moving = frozenset(reference.moving)
    try:
        while True:
            answers, rest = reference.with_room(_run(reference, inputs, seed, moving))
            if rest == moving:
                return answers, rest
            moving = rest
    except (TaskError, MachineError):
        return NOTHING


def _run(
    reference: Reference, inputs: list[Any], seed: int, moving: frozenset[str]
) -> Callable[[], tuple[tuple[bool, ...], frozenset[str]]]:
    """A run that takes the numbers in the buffers of ``moving`` for given ones."""

    def forward() -> tuple[tuple[bool, ...], frozenset[str]]:
        twin, given = converted(reference.module, inputs, Yardstick.ITSELF)
        computed = reference.moving - moving
        held = (value for name, value in twin.state_dict().items() if name not in computed)
        plain = (value for part in twin.modules() for value in vars(part).values())
        with Copied(t for t in (*held, *plain, *_leaves(given)) if isinstance(t, torch.Tensor)) as noted:
            result = reference.measured(twin, given, Yardstick.ITSELF, None, seed)
        noted.answered(outputs_of(result))
        behind = twin.state_dict()
        return noted.answers, frozenset(name for name in moving if noted.holds(behind[name]))

    return forward


def _leaves(inputs: list[Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    map_tensors(inputs, lambda tensor: (found.append(tensor), tensor)[1])
    return found
