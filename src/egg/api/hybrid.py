"""Two teams in one: the built-in one writes the first kernel, a model goes on from there."""

from __future__ import annotations

from dataclasses import dataclass

from egg.core.plan import Diagnosis, Draft, Plan, Unusable
from egg.core.roles import Brief, Coder, Debugger, Designer, Failure, Team, Tuner


@dataclass(frozen=True)
class HybridTeam:
    """A seed and its repairs come from ``first``; every plan and every later file from ``then``.

    Where the built-in team has no way left to write a seed, the model may try.
    """

    first: Team
    then: Team

    @property
    def designer(self) -> Designer:
        return self.then.designer

    @property
    def tuner(self) -> Tuner:
        return self.then.tuner

    @property
    def coder(self) -> Coder:
        return _Coder(self.first.coder, self.then.coder)

    @property
    def debugger(self) -> Debugger:
        return _Debugger(self.first.debugger, self.then.debugger)


@dataclass(frozen=True)
class _Coder:
    first: Coder
    then: Coder

    def seed(self, brief: Brief) -> Draft | Unusable:
        draft = self.first.seed(brief)
        return draft if isinstance(draft, Draft) else self.then.seed(brief)

    def optimize(self, brief: Brief, plan: Plan) -> Draft | Unusable:
        return self.then.optimize(brief, plan)

    def repair(self, brief: Brief, failure: Failure, diagnosis: Diagnosis) -> Draft | Unusable:
        if failure.plan is None:
            draft = self.first.repair(brief, failure, diagnosis)
            if isinstance(draft, Draft):
                return draft
        return self.then.repair(brief, failure, diagnosis)


@dataclass(frozen=True)
class _Debugger:
    first: Debugger
    then: Debugger

    def diagnose(self, brief: Brief, failure: Failure) -> Diagnosis | Unusable:
        return (self.first if failure.plan is None else self.then).diagnose(brief, failure)
