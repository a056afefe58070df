"""Numbers that host code hands to the device, where the same inputs come again.

A file may remember in Python: it reads a checksum of its inputs, finds the answer of an earlier call in a
dictionary, and hands it to the same launch as a number. No tensor is kept and no other kernel is launched. So
the numbers are compared that launches and operators are given, constants of compilation and tensors made of
Python's numbers among them: for A, behind B, they must be those for A before. A count of calls is another
number at each of them. It grows by the same step, or is what a new instance hands over at its call of that
number, on inputs that are all new.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """``replies``: to A, to B and to A again. ``question`` is A."""
    random = trial.reference.stochastic or trial.reference.advances
    if random or not _unexplained(*(reply.handed for reply in replies)):
        return
    trial.connection.fresh()
    first, second, again = _in_turn(trial, (question, None, question))
    trial.connection.fresh()
    counted = _in_turn(trial, (None, None, None))[-1]
    trial.connection.fresh()
    found = _unexplained(first, second, again, counted)
    if found:
        evidence = (
            f"for inputs that it saw before it hands over other numbers: {'; '.join(found[:MOST_NAMED])}"
        )
        raise Refused("state.remembers", evidence, HINT)


def _in_turn(trial: Trial, questions: Sequence[Case | None]) -> list[Handed]:
    """Behind a call that counts for nothing; ``None`` stands for inputs that are new."""
    handed = []
    for question in (None, *questions):
        asked = question or trial.reference.question("other inputs")
        trial.buffers.place(asked)
        handed.append(trial.ask(asked, options=OPTIONS).handed)
    return handed[1:]


def _unexplained(first: Handed, second: Handed, again: Handed, counted: Handed = ()) -> list[str]:
    """Where the numbers for A differ, and no count of calls is the reason."""
    rows = zip_longest(first, again, second, counted)
    return [
        f"{_words(one)}, then {_words(three)}"
        for one, three, two, fresh in rows
        if one != three and three != fresh and not _steps(one, two, three)
    ]


def _words(place: tuple[str, str] | None) -> str:
    return "nothing" if place is None else " ".join(place)


def _steps(*places: tuple[str, str] | None) -> bool:
    """Whether it is one number that grows alike."""
    if any(place is None for place in places) or len({place[0] for place in places if place}) > 1:
        return False
    try:
        one, two, three = (int(place[1]) for place in places if place)
    except ValueError:
        return False
    return two - one == three - two
