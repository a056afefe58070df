"""What a file carries from call to call in buffers that the task itself moves.

Such a buffer is compared with room for rounding, and a file could keep something of its own in that room: a
count of its calls in the last bits of an average, a copy of its inputs, an answer. That is no rounding, and
calls show it which begin at states of which both sides have every bit:

* What forward leaves alone (rows of a bank that no index named) keeps its bits.
* From every state the answer is the reference's: in some, elements are off by more than the room that
  rounding has, in others a buffer is what it was before the last calls, and the inputs are those of the last.
* Of two states that differ in some elements of the buffers, the others arrive at the same bits wherever the
  reference's do, in fp64 too: what does not follow from those elements cannot follow from their rounding. A
  count with a mark that tells it from chance, or one of many digits, is left in other elements than it is
  read from.

The last rule looks at bits, so it is only held against a file that leaves the same bits when it is called
again; and where an order of nearly equal numbers might have changed, other inputs must show the same.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from egg.core.errors import TaskError
from egg.evaluator.gates.exactness import HINT, State, check_alone, first, inexact_beside, same
from egg.evaluator.gates.moved import MOVE, parts
from egg.evaluator.reference.answers import bits, finite_share, inexact, same_bytes
from egg.evaluator.reference.left import Exactly
from egg.evaluator.reference.reference import Reference
from egg.evaluator.trial.levels import Probes
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial

FEW, MANY = 1, 8
"""Times that both halves of the buffers are changed, at quick and at full."""
SHARE = 8
"""They may take so many times less than the many calls."""
LEAST, PAIR = 6, 2
"""States that are tried in any case, of those; and where there is little time: one half and the other."""
Marks = Mapping[str, torch.Tensor]
"""Of each buffer, some elements."""


@dataclass(frozen=True)
class _Left:
    """What a call left behind it on both sides, by name, from one state."""

    before: State
    theirs: State
    ours: State
    exact: State
    """In fp64; empty where the program does not run in it."""

    def inexact(self, reference: Reference) -> str:
        """The first buffer that is further from the exact one than rounding explains."""
        found = (n for n in self.theirs if inexact_beside(reference, n, self.theirs, self.ours, self.exact))
        return next(found, "")


def run(trial: Trial, first: State, inputs: list[Any], *, brief: bool = False) -> int:
    """Behind calls from the state ``first``, the last of them on ``inputs``; ``brief`` where a call takes
    long: then there are five in all, as long as nothing is found.

    Returns the number of other states that were tried. What both sides hold afterwards is of no use.
    """
    names = trial.connection.names.values()
    moving = [name for name in sorted(trial.reference.moving) if name in names]
    moving = [name for name in moving if inexact(trial.reference.initial[name])]
    return _Carried(trial, moving, PAIR if brief else LEAST).look(first, inputs) if moving else 0


@dataclass(frozen=True)
class _Carried:
    """The questions to one file, about the buffers of ``moving``."""

    trial: Trial
    moving: list[str]
    least: int
    """Other states that are tried whatever time they take."""

    def look(self, first: State, inputs: list[Any]) -> int:
        """The question from the state in which the file itself has left the module, and from others."""
        ours = self._state()
        base = self._call(inputs, ours | self.trial.connection.candidate_state())
        if base is None:
            return 0
        self._without_its_own(base.before, ours)
        tried, until = 0, time.perf_counter() + self.trial.settings.calls_seconds / SHARE
        for state, marks in self._states(base.before, first):
            if tried >= self.least and time.perf_counter() > until:
                break
            tried += 1
            other = self._call(inputs, state)
            if other is not None and _follows(base, other, marks):
                self._confirm(base, other, marks, inputs)
        return tried

    def _without_its_own(self, own: State, ours: State) -> None:
        """The question from the file's own state, and from one in which all elements are as the reference has
        left them: small numbers that stand for zeros outlive what is off by a part of itself. On new inputs:
        on those of the last call the reference leaves the same again."""
        marks = {name: bits(parts(own[name])) != bits(parts(ours[name])) for name in self.moving}
        if not any(mark.any() for mark in marks.values()):
            return
        fresh, given = self.trial.reference.draw(), {name: ours[name] for name in self.moving}
        base, other = (self._call(fresh, state) for state in (own, own | given))
        if base is not None and other is not None and _follows(base, other, marks):
            self._confirm(base, other, marks, fresh)

    def _states(self, own: State, first: State) -> Iterator[tuple[State, Marks]]:
        """Other states, and which elements are others: about half of each buffer and then the other half, by
        a little; or some buffers whole, as they were before the first of the calls."""
        generator = torch.Generator().manual_seed(secrets.randbits(48))
        order = secrets.SystemRandom().sample(self.moving, len(self.moving))
        for number in range(MANY if self.trial.settings.domain is Probes.ALL else FEW):
            marks = self._halves(own, generator)
            for half in (marks, {name: ~mark for name, mark in marks.items()}):
                yield _elsewhere(own, half, generator), half
            if number < len(order) > 1:
                chosen = order[number]
                marks = {name: torch.full_like(mark, name == chosen) for name, mark in marks.items()}
                yield own | {chosen: first[chosen].clone()}, marks

    def _halves(self, own: State, generator: torch.Generator) -> Marks:
        """By lot. Buffers of one shape have the same: what a kernel knows of a channel may be of use for all
        the statistics of that channel (a mean, by which it shifts before it sums squares)."""
        lots: dict[torch.Size, torch.Tensor] = {}
        for name in self.moving:
            shape = parts(own[name]).shape
            if shape not in lots:
                lots[shape] = torch.rand(shape, generator=generator) < 0.5
        return {name: lots[parts(own[name]).shape].to(own[name].device) for name in self.moving}

    def _call(self, inputs: list[Any], before: State, *, again: bool = False) -> _Left | None:
        """One call of both from that state; ``None`` where the reference has no answer there.

        What it leaves less exactly than rounding explains must be so ``again`` on other inputs: the reference
        may have been exact by luck.
        """
        trial, reference = self.trial, self.trial.reference
        reference.module.load_state_dict(before)
        trial.connection.share_weights()
        seed = secrets.randbits(31)
        exactly = Exactly(reference)
        exactly.call(inputs, seed)
        try:
            case = reference.answer("from a state that both sides have", inputs, own=False, seed=seed)
        except TaskError:
            return None
        if 2 * finite_share(case.outputs) < reference.finite_share:
            return None
        trial.buffers.place(case)
        reply = trial.ask(case)
        what = "elements of the buffers that forward moves were changed to others, the inputs were not"
        trial.expect(case, reply, "state.remembers", what, HINT)
        left = _Left(before, trial.connection.candidate_state(), self._state(), exactly.state())
        for name in self.moving:
            check_alone(name, before, left.theirs, left.ours, left.exact)
        if left.inexact(reference) and not again:
            confirmed = self._call(reference.draw(), before, again=True)
            if confirmed is not None and (name := confirmed.inexact(reference)):
                raise Refused(
                    "state.buffers", f"{name} is less exact than what Model's forward leaves there", HINT
                )
        return left

    def _confirm(self, base: _Left, other: _Left, marks: Marks, inputs: list[Any]) -> None:
        """Refuse a file that does it again, where it leaves the same bits in the same call."""
        for left in (base, other):
            again = self._call(inputs, left.before)
            if again is None or not all(same_bytes(again.theirs[n], left.theirs[n]) for n in self.moving):
                return
        fresh = self.trial.reference.draw()
        one, two = (self._call(fresh, left.before) for left in (base, other))
        wrong = _follows(one, two, marks) if one is not None and two is not None else ""
        if wrong:
            raise Refused("state.remembers", wrong, HINT)

    def _state(self) -> State:
        return self.trial.reference.state()


def _follows(one: _Left, two: _Left, marks: Marks) -> str:
    """Where an element is left otherwise that has the same value before, and behind it in the reference."""
    for name, marked in marks.items():
        if name not in one.exact or name not in two.exact:
            continue
        theirs, ours = ([parts(state[name]) for state in pair]
                        for pair in ((one.theirs, two.theirs), (one.ours, two.ours)))  # fmt: skip
        apart = same(*ours) & (one.exact[name] == two.exact[name]) & ~marked
        wrong = apart & ~same(*theirs)
        if wrong.any():
            return (
                f"what is left in {name} follows from the rounding of other elements: where those were "
                f"changed, {first(wrong, *theirs)}, and Model's forward leaves the same bits"
            )
    return ""


def _elsewhere(own: State, marks: Marks, generator: torch.Generator) -> State:
    """Marked elements are off by a few times what rounding may explain, or by half of their digits."""
    found = dict(own)
    for name, marked in marks.items():
        value = parts(own[name])
        by = max(4 * MOVE, torch.finfo(value.dtype).eps ** 0.5)
        lots = torch.rand(value.shape, generator=generator, dtype=torch.float64).to(value.device)
        moved = (value.double() * (1.0 + by * (lots - 0.5))).to(value.dtype)
        other = torch.where(marked, moved, value)
        found[name] = torch.view_as_complex(other) if own[name].is_complex() else other
    return found
