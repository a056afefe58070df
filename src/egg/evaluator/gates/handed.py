"""Numbers that host code hands to the device, where the same inputs come again.

A file may remember in Python: it reads a checksum of its inputs, finds the answer of an earlier call in a
dictionary, and hands it to the same launch as a number. No tensor is kept and no other kernel is launched. So
the numbers are compared that launches and operators are given, constants of compilation and tensors made of
Python's numbers among them: for A, behind B, they must be those for A before. How a kernel learns that it may
rest does not matter (a flag in one of two constant tensors is no number): what every launch loads and stores
in the interpreter is compared with them.

A count of calls is another number at each of them. It is what a new instance hands over at its call of that
number, on inputs that are all new. Where the task draws random numbers, A comes again with its seed.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

from egg.evaluator.reference.case import Case
from egg.evaluator.transport.protocol import Forwarded, Options
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial

Handed = Sequence[tuple[str, str]]
"""To whom, and the number in words; in order."""
OPTIONS = Options(handed=True)
MOST_NAMED = 3
HINT = "compute from the inputs on every call; numbers that follow from the inputs of earlier ones are kept"


def check(trial: Trial, question: Case, replies: Sequence[Forwarded]) -> None:
    """``replies``: to A, to B and to A again, each under a seed of its own. ``question`` is A."""
    random = trial.reference.stochastic or trial.reference.advances
    if not random and not _unexplained(replies[0].handed, replies[-1].handed):
        return
    trial.connection.fresh()
    question = replace(question, seed=secrets.randbits(31))
    first, _, again = _in_turn(trial, (question, None, question))
    trial.connection.fresh()
    counted = _in_turn(trial, (None, None, None))[-1]
    _begin_anew(trial)
    found = _unexplained(first, again, counted)
    if found:
        evidence = (
            "for inputs that it saw before it hands over other numbers, or its launches do other work: "
            f"{'; '.join(found[:MOST_NAMED])}"
        )
        raise Refused("state.remembers", evidence, HINT)


def _begin_anew(trial: Trial) -> None:
    """Both sides as if they were never called: what their answers depend on may count the calls."""
    trial.reference.module = trial.reference.anew()
    trial.connection.fresh()
    trial.connection.share_weights()


def _in_turn(trial: Trial, questions: Sequence[Case | None]) -> list[Handed]:
    """Behind a call that counts for nothing; ``None`` stands for inputs that are new."""
    handed = []
    for question in (None, *questions):
        asked = question or replace(trial.reference.question("other inputs"), seed=secrets.randbits(31))
        trial.buffers.place(asked)
        handed.append(trial.ask(asked, options=OPTIONS).handed)
    return handed[1:]


def _unexplained(first: Handed, again: Handed, counted: Handed = ()) -> list[str]:
    """Where the numbers for A differ, and no count of calls is the reason."""
    return [
        f"{_words(one)}, then {_words(two)}"
        for one, two, fresh in zip_longest(first, again, counted)
        if one != two and two != fresh
    ]


def _words(place: tuple[str, str] | None) -> str:
    return "nothing" if place is None else " ".join(place)
