"""What an optimization is worth: the verdict, the speedups, the domain, and why a kernel is used or not."""

from __future__ import annotations

import html
from dataclasses import dataclass
from functools import cached_property

from egg.core.domain import Domain
from egg.core.domain_words import words_of
from egg.core.evaluation import Accepted, Baseline, Evaluation, Measured
from egg.core.source import Task


@dataclass(frozen=True)
class Outcome:
    """The result of a run for one module, or a kernel that was loaded."""

    task: Task
    source: str | None
    """The kernel file; ``None`` where the original is the best that was found."""
    evaluation: Evaluation | None
    reason: str
    """Why the run ended with what it did, in a sentence."""
    folder: str = ""
    """Where the run is kept."""

    @property
    def verified(self) -> bool:
        return self.source is not None and self.evaluation is not None and self.evaluation.checked

    @property
    def measured(self) -> Measured | None:
        """The measured performance; ``None`` without a kernel or without a GPU."""
        verdict = self.evaluation.verdict if self.evaluation is not None else None
        found = verdict.performance if isinstance(verdict, Accepted) else None
        return found if isinstance(found, Measured) else None

    @property
    def faster(self) -> bool | None:
        """Whether the kernel is faster than the fastest that PyTorch was measured at, beyond the noise.

        That is the original as it is, or what ``torch.compile`` makes of it. ``None`` without a measurement.
        """
        measured = self.measured
        return measured.faster and unbeaten(measured) is None if measured is not None else None

    @property
    def opponent(self) -> str:
        """The fastest way of PyTorch that was measured, in words; empty where none was."""
        found = hardest(self.measured) if self.measured is not None else None
        return words(found) if found is not None else ""

    @property
    def speedups(self) -> dict[str, Baseline]:
        """By opponent, with intervals: eager, and what torch.compile makes of the program."""
        return {b.name: b for b in self.measured.baselines} if self.measured is not None else {}

    @cached_property
    def domain(self) -> Domain | None:
        """The calls that the kernel is for."""
        return Domain.of_source(self.source) if self.source is not None else None

    @property
    def verdict(self) -> str:
        """``faster``, ``not faster``, ``unmeasured`` (verified without a GPU) or ``original``."""
        if not self.verified:
            return "original"
        return {True: "faster", False: "not faster", None: "unmeasured"}[self.faster]

    def rows(self) -> list[tuple[str, str]]:
        """For people: what is known, line by line."""
        found = [("module", self.task.name), ("verdict", self.verdict), ("why", self.reason)]
        for name, baseline in self.speedups.items():
            s = baseline.speedup
            found.append((f"over {name}", f"{s.median:.2f}x ({s.low:.2f} to {s.high:.2f})"))
        if self.measured is not None:
            if self.opponent:
                than = "faster than" if self.faster else "not faster than"
                found.append((than, f"{self.opponent}, the fastest that PyTorch was measured at"))
            found.append(("measured on", self.measured.gpu))
        elif self.verified:
            found.append(("speed", "not measured: there was no GPU"))
        if self.domain is not None:
            found.append(("for", words_of(self.domain)))
        return [*found, ("run", self.folder)] if self.folder else found

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
            for name, text in self.rows()
        )
        return f"<table>{rows}</table>"


def hardest(measured: Measured) -> Baseline | None:
    """The opponent that a kernel gains least over."""
    return min(measured.baselines, key=lambda found: found.speedup.low, default=None)


def unbeaten(measured: Measured) -> Baseline | None:
    """The hardest opponent, where a kernel is not faster than it beyond the noise."""
    found = hardest(measured)
    return found if found is not None and found.speedup.low <= 1 + measured.noise_floor else None


def words(opponent: Baseline) -> str:
    """The name of an opponent in messages."""
    known = {"eager": "the original", "compile": "torch.compile"}
    return known.get(opponent.name) or f"torch.compile in the mode {opponent.name}"
