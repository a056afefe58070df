"""Accepted kernels of programs like a task, found in the runs of a folder.

Likeness is that of lessons (:mod:`egg.memory.signature`): shares of operator families, sizes, dtype, what
limits it. The kernels are shown as examples; nothing is claimed of their speed on another task.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from egg.core.errors import EggError
from egg.core.facts import Facts
from egg.core.step import Kernel
from egg.engine.log import LOG, read_log
from egg.engine.state import fold
from egg.memory.phrases import score as worded
from egg.memory.signature import kinship, signature_of, similarity

LEAST_LIKENESS = 0.4
"""Of 1: programs below it share too little."""
MOST_RUNS = 200
"""Logs that are read, the newest: a folder may hold thousands."""


@dataclass(frozen=True)
class Alike:
    """An accepted kernel of an earlier run, and how like its task is."""

    run: Path
    task: str
    likeness: float
    kernel: Kernel

    def to_json(self) -> dict[str, Any]:
        score = self.kernel.score
        return {
            "run": str(self.run),
            "task": self.task,
            "likeness": round(self.likeness, 3),
            "milliseconds": score.milliseconds.median,
            "speedup_over_eager": score.speedup.median if score.speedup is not None else None,
            "measured": score.measured,
            "summary": worded(score),
            "kernel": self.kernel.candidate.source,
        }


def kernels_alike(
    facts: Facts, folder: Path, most: int = 3, without: Path | None = None
) -> tuple[Alike, ...]:
    """The best kernel of each run whose task is like that of ``facts``, the likest first; not of the run
    ``without``.

    A log that cannot be read is passed over: it belongs to another version, or is being written.
    """
    logs = sorted(folder.glob(f"**/{LOG}"), key=lambda log: log.stat().st_mtime, reverse=True)
    logs = [log for log in logs if without is None or not log.resolve().is_relative_to(without.resolve())]
    found = [one for log in logs[:MOST_RUNS] if (one := _alike(facts, log.parent)) is not None]
    found.sort(key=lambda one: (-round(one.likeness, 2), -_speed(one.kernel)))
    return tuple(found[:most])


def _alike(facts: Facts, run: Path) -> Alike | None:
    try:
        state = fold(entry.event for entry in read_log(run))
    except (EggError, ValueError):
        return None
    kernel = state.best_kernel
    if kernel is None:
        return None
    theirs = state.started.facts
    likeness = similarity(signature_of(facts), signature_of(theirs)) * kinship(facts.gpu, theirs.gpu)
    return Alike(run, state.started.task.name, likeness, kernel) if likeness >= LEAST_LIKENESS else None


def _speed(kernel: Kernel) -> float:
    return kernel.score.speedup.median if kernel.score.speedup is not None else 0.0
