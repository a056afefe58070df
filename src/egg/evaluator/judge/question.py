"""One thing to judge, and the terms: what travels to an oracle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from egg.core.codec import from_json, to_json
from egg.core.evaluation import Gate
from egg.core.policy import Policy, Precision
from egg.core.source import Candidate, Task
from egg.evaluator.trial.levels import LEVELS, LevelSettings

FORMER_KEYS = {"care": "settings", "rivals": "contenders"}
"""What older versions called a field in a job file."""


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
    settings: LevelSettings | None = None
    """Overrides what the policy's level would spend."""
    plan: bool = False
    """Whether the candidate is a recorded plan, judged in its author's place."""
    contenders: tuple[Candidate, ...] = ()
    """Other files, timed side by side with the candidate. It is then neither checked nor held against the
    reference: the answer only ranks, and what else judging each of them would take is left out."""

    @property
    def level_settings(self) -> LevelSettings:
        return self.settings or LEVELS[self.policy.level]

    @property
    def replaced(self) -> dict[str, Any]:
        """Of what the policy's level spends, what this question replaces; part of the evaluation."""
        usual, spent = (to_json(settings) for settings in (LEVELS[self.policy.level], self.level_settings))
        return {name: value for name, value in spent.items() if value != usual[name]}

    @property
    def identity(self) -> dict[str, Any]:
        """The fields of an evaluation that say what was judged, and on which terms."""
        return {
            "task": self.task.name,
            "task_hash": self.task.hash,
            "candidate": self.candidate.name,
            "candidate_hash": self.candidate.hash,
            "task_sha256": self.task.sha256,
            "candidate_sha256": self.candidate.sha256,
            "policy": self.policy,
            "settings": self.replaced,
        }


@dataclass(frozen=True)
class RecordRequest:
    """Asks for what torch.compile generates for a task under a precision; no candidate is part of it."""

    task: Task
    precision: Precision = Precision.MATCH


@dataclass(frozen=True)
class PlanRequest:
    """Asks for a recorded plan of a candidate; nothing is judged but the plan's form."""

    task: Task
    candidate: Candidate
    precision: Precision = Precision.MATCH
    target: str | None = None
    """The GPU to record for on a machine without one."""


def read_question(data: Mapping[str, Any]) -> Question:
    """A question from JSON, also as older versions wrote it."""
    return from_json(Question, {FORMER_KEYS.get(key, key): value for key, value in data.items()})
