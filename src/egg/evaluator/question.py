"""One thing to judge, and the terms: what travels to an oracle."""

from __future__ import annotations

from dataclasses import dataclass, field

from egg.core.evaluation import Gate
from egg.core.policy import Policy
from egg.core.source import Candidate, Task
from egg.evaluator.care import CARE, Care


@dataclass(frozen=True)
class Question:
    """A task, a candidate for it, and the terms of the evaluation."""

    task: Task
    candidate: Candidate
    policy: Policy = field(default_factory=Policy)
    target: str | None = None
    """The GPU to compile for on a machine without one."""
    skip: tuple[Gate, ...] = ()
    """Gates left out, for testing the ones behind them; the result says so."""
    care: Care | None = None
    """Overrides what the policy's level would spend."""
    rivals: tuple[Candidate, ...] = ()
    """Other files to be timed beside the candidate. It is then neither checked nor held against the
    reference: the answer only ranks, and what else judging each of them would take is left out."""

    @property
    def carefully(self) -> Care:
        return self.care or CARE[self.policy.level]
