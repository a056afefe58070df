"""The contenders of a side-by-side timing, and how they ranked."""

from __future__ import annotations

from dataclasses import dataclass, field

from egg.core.evaluation import Contender
from egg.core.source import Candidate


@dataclass
class SideBySide:
    """Empty in an ordinary evaluation."""

    files: tuple[Candidate, ...] = ()
    unfit: list[str] = field(default_factory=list)
    """For each file why it cannot run, empty where it can."""
    ranked: tuple[Contender, ...] = ()
