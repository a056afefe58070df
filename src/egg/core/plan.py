"""What the roles of a team say: a plan, a draft, a diagnosis, or that there is nothing to do.

Every answer is a value with a ``kind``, so that a log can hold it and a later reader knows
the answers without asking a model again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from egg.core.stage import Category, Metric


@dataclass(frozen=True)
class Prediction:
    """What a change should do, stated before it is written, to stand beside what it did."""

    speedup: float
    """Over the base; 1.0 is no change."""
    metric: Metric
    """The one that should move."""
    expectation: str
    """How it should move, in a few words: ``4 launches -> 1``."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.speedup) and self.speedup > 0):
            raise ValueError(f"a predicted speedup is a positive number, not {self.speedup}")


@dataclass(frozen=True)
class Plan:
    """One change to the base: of which kind, against which bottleneck, with what expected effect."""

    kind: ClassVar[str] = "plan"
    category: Category
    bottleneck: str
    change: str
    prediction: Prediction
    skill: str | None = None
    """The expert skill it follows, out of those that were offered."""


@dataclass(frozen=True)
class Pass:
    """Nothing worth optimizing is left in this stage."""

    kind: ClassVar[str] = "pass"
    reason: str


class EditKind(StrEnum):
    """What an edit does with its target."""

    REPLACE = "replace"
    """The whole definition gets another text."""
    CHANGE = "change"
    """One passage inside the definition gets another text."""
    ADD = "add"
    """New definitions go behind it."""
    DELETE = "delete"


@dataclass(frozen=True)
class Edit:
    """One change to a kernel file, at a definition of its module level or a method of one of its classes."""

    operation: EditKind
    target: str
    """``matmul_kernel``, ``ModelNew.forward``, ``BLOCK``."""
    text: str = ""
    """The new text; of a passage, in the place of ``old``."""
    old: str = ""
    """The passage to change, which occurs once in the target."""


@dataclass(frozen=True)
class Draft:
    """A kernel file as a coder wrote it."""

    kind: ClassVar[str] = "draft"
    source: str
    edits: tuple[Edit, ...] = ()
    """The edits of the earlier file that made this one; empty where it was written whole."""


@dataclass(frozen=True)
class Diagnosis:
    """A debugger's answer: the root cause, and what to change where."""

    kind: ClassVar[str] = "diagnosis"
    critical_issue: str
    modification_plan: str


@dataclass(frozen=True)
class Unusable:
    """Nothing usable came back: a refusal, a reply cut short, the wrong form twice."""

    kind: ClassVar[str] = "unusable"
    reason: str


@dataclass(frozen=True)
class Weighed:
    """A structure that the built-in team weighed for its best kernel, written or only priced."""

    change: str
    """What it would change, in words."""
    against: str
    """What it would relieve."""
    predicted: float
    """Speedup over that kernel, by its model."""
    tried: bool = False
    """Whether a step of its run wrote it; what came of that stands with its steps."""


@dataclass(frozen=True)
class Exhausted:
    """Nobody was asked: the next call could pass a cap."""

    kind: ClassVar[str] = "exhausted"
    reason: str


Answer = Plan | Pass | Draft | Diagnosis | Unusable | Exhausted
