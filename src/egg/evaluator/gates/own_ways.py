"""Other ways of calling a file at the task's own size: each configuration of its autotuners, grad mode,
other addresses, inputs of other sizes, weights that nothing loaded, orders by lot.

At the size that is interpreted all of them are tried. A kernel may branch on a size and on the way at once,
so each is asked here too, with few programs of every launch, as far as the time goes; what there is no time
for is listed in the verdict.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from egg.evaluator.gates import callers, disorder, own_scales
from egg.evaluator.gates.configurations import WRONG, listed
from egg.evaluator.gates.under_grad import SAME, WORDS
from egg.evaluator.process.handle import Fault
from egg.evaluator.reference.case import Case
from egg.evaluator.task import spread
from egg.evaluator.transport.protocol import Configure, GradMode, Written
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial

DISPLACED = "inputs that lie as slices of other tensors, aligned to 16 bytes"
TURNS = 2
"""How many times as long as the others a call may take of which programs meet in orders by lot."""
ANYWHERE = (
    "compute the same wherever inputs lie; where a kernel needs more alignment, copy them or raise an error"
)


class Ask(Protocol):
    """Puts a question to a set of inputs, and checks everything about the answer."""

    def __call__(
        self, case: Case, *, keep: bool = False, grad: GradMode = GradMode.OFF, index: int = 0
    ) -> Mapping[str, int]: ...


@dataclass
class Ways:
    """Of one instance that answered ``case`` rightly."""

    trial: Trial
    case: Case
    ask: Ask
    each: float
    """Seconds that a call takes."""

    def _again(self) -> Case:
        """The question, with the answer of now where that follows from the calls so far."""
        if not self.trial.follows:
            return self.case
        return self.trial.reference.answer(self.case.label, self.case.inputs, own=False)

    def configured(self, seconds: float) -> list[str]:
        """With every other configuration, in any order; returns what was left out."""
        first = self.trial.connection.request(Configure(0))
        places = list(range(1, first.most))
        secrets.SystemRandom().shuffle(places)
        until = time.perf_counter() + seconds
        try:
            for at, place in enumerate(places):
                if time.perf_counter() + self.each > until:
                    return [f"{len(places) - at} other configurations of autotuners are taken"]
                self.trial.connection.request(Configure(place))
                try:
                    self.ask(self._again())
                except Refused as wrong:
                    names = self.trial.connection.request(Configure(place)).names
                    evidence = f"with {listed(names) or f'configuration {place + 1}'}: {wrong.evidence}"
                    raise Refused("correctness.configuration", evidence, WRONG, facts=wrong.facts) from None
        finally:
            if self.trial.connection.process.alive:
                self.trial.connection.request(Configure(0))
        return []

    def under_grad(self, seconds: float) -> list[str]:
        """Under grad mode, where an exception passes; returns what was left out."""
        learning = self.trial.reference.learning
        modes = (GradMode.FROZEN, GradMode.ON) if learning else (GradMode.FROZEN,)
        until, left = time.perf_counter() + seconds, []
        for mode in modes:
            if time.perf_counter() + self.each > until:
                left.append(f"it is called {WORDS[mode]}")
                continue
            try:
                self.ask(self._again(), grad=mode)
            except Fault as fault:
                self.trial.survive(fault)
            except Refused as wrong:
                evidence = f"{WORDS[mode]}, where under no_grad the answers are right: {wrong.evidence}"
                raise Refused("correctness.grad_mode", evidence, SAME, facts=wrong.facts) from None
        return left

    def displaced(self, seconds: float) -> list[str]:
        """On inputs aligned to 16 bytes alone, where an exception passes; returns what was left out."""
        if self.each > seconds:
            return [f"it is called on {DISPLACED}"]
        try:
            self.ask(self._again(), index=1)
        except Fault as fault:
            self.trial.survive(fault)
        except Refused as wrong:
            if not wrong.reason.startswith("correctness."):
                raise
            evidence = f"on {DISPLACED}, where on others the answers are right: {wrong.evidence}"
            raise Refused("state.callers", evidence, ANYWHERE, facts=wrong.facts) from None
        return []

    def scaled(self, seconds: float) -> list[str]:
        """On inputs of which few slices make up most, where an exception passes; returns what was left
        out."""
        until, trial, left = time.perf_counter() + seconds, self.trial, set[str]()
        for turn in range(spread.TURNS):
            if time.perf_counter() + self.each > until:
                left.add(own_scales.WORDS)
                break
            case = own_scales.question(trial, turn)
            if isinstance(case, str):
                left |= {case} - {""}
                continue
            try:
                self.ask(case)
            except Fault as fault:
                trial.survive(fault)
        if trial.reference.moving:
            trial.connection.restore_weights()
            trial.level()
        return sorted(left)

    def by_lot(self, seconds: float, *, whole: bool) -> list[str]:
        """With what the language leaves open drawn by lot; returns what was left out. Turns take longer than
        programs one after the other."""
        left = ["orders are drawn by lot"]
        if not whole or TURNS * self.each > seconds:
            return left
        try:
            disorder.ask(self.trial, self.case.label)
        except Fault as fault:
            if fault.reason != "limits.timeout":
                raise
            self.trial.connection.restart()
            return left
        return []

    def as_built(self, seconds: float) -> list[str]:
        """A new instance, with weights as its constructor left them; returns what was left out."""
        connection, reference = self.trial.connection, self.trial.reference
        if not connection.names:
            return []
        if self.each > seconds:
            return [callers.AS_BUILT.words]
        if not connection.as_built():
            connection.share_weights(Written.IN_PLACE)
        try:
            self.ask(reference.answer(self.case.label, self.case.inputs, own=self.case.own))
        except Refused as wrong:
            part = callers.AS_BUILT
            raise Refused(
                part.reason, f"{part.words}: {wrong.evidence}", part.hint, facts=wrong.facts
            ) from None
        return []
