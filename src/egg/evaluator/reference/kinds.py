"""What timed calls may do to the values of each input, inferred from draws of the task's generator.

Before a call that is timed every input is given other values (:mod:`egg.evaluator.transport.freshen`). How
depends on what the generator makes, on what the program takes, and on what forward writes to.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from egg.core.errors import MachineError, TaskError
from egg.evaluator.reference.reserve import apart
from egg.evaluator.task.program import Program
from egg.evaluator.transport import exchange, freshen, together
from egg.evaluator.transport.freshen import Kind, kind_of
from egg.evaluator.transport.together import Group

LARGE = 1 << 26
"""Elements of all inputs from which on no further copy of them is made."""
MIXTURES, MIXING = 12, 1.0
"""Mixtures of its inputs at which a program is tried, and the seconds after which no other is."""


def kinds_of(
    program: Program, tensors: list[torch.Tensor], drawn: list[Any], run: Callable[[list[Any]], object]
) -> list[Kind]:
    """What the generator does to each input, inferred from another draw, ``drawn``.

    Values that seem to stand anywhere may be related all the same: columns of one tensor of which one is
    an index. A program that raises where they are moved, when it is ``run``, gets whole draws.
    """
    _, others = exchange.pack(drawn)
    if len(others) != len(tensors):
        raise TaskError(
            f"task {program.task.name!r}: get_inputs() returns another number of tensors each time",
            "inputs must have the same structure on every call",
        )
    kinds = [kind_of(one, other) for one, other in zip(tensors, others, strict=True)]
    tried = Kind.LOOSE in kinds and sum(t.numel() for t in tensors) <= LARGE
    if tried and not _takes_mixed(drawn, tensors, kinds, run):
        kinds = [Kind.DRAWN if kind is Kind.LOOSE else kind for kind in kinds]
    return together.drawn_whole(tensors, kinds)


def renewed(kinds: Sequence[Kind], writes: Collection[int]) -> list[Kind]:
    """``kinds``, where what forward writes to is given a whole draw before each call, be it the same one."""
    return [Kind.DRAWN if k is Kind.FIXED and at in writes else k for at, k in enumerate(kinds)]


def check_apart(program: Program, groups: Sequence[Group], writes: Collection[int]) -> None:
    """What a call leaves in an input cannot be told from what it leaves in one that overlaps it."""
    if any(group.shares and {*group.members}.intersection(writes) for group in groups):
        raise TaskError(
            f"task {program.task.name!r}: Model.forward writes to an input that overlaps another",
            "make the reference copy one of them: what is left in both cannot be told apart",
        )


def _takes_mixed(
    drawn: list[Any], tensors: list[torch.Tensor], kinds: list[Kind], run: Callable[[list[Any]], object]
) -> bool:
    """Whether the program runs where loose values are moved, as often as a moment allows: one mixture in
    eight leaves both columns of a tensor where they belong."""
    until, generator = time.perf_counter() + MIXING, random.Random(secrets.randbits(64))
    for _ in range(MIXTURES):
        mixed = apart(drawn)
        freshen.apply(exchange.pack(mixed)[1], [tensors], freshen.draw(tensors, kinds, [0], generator))
        try:
            run(mixed)
        except TaskError:
            return False
        except MachineError:  # no memory says nothing of them
            return True
        if time.perf_counter() > until:
            break
    return True
