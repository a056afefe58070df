"""Figures of experiments: what each stage brought, and what several samples of each task came to.

*Gain of a stage.* A task's gain in a stage is the product of the gains of its promoted steps there, 1 where
none was promoted. The figure is the geometric mean over the tasks with an accepted kernel that the run did
not skip the stage for every one of; beside it stands how many steps were taken and how many were promoted.

*pass@k.* With ``n`` samples of a task, ``c`` of them correct, the chance that one of ``k`` drawn samples is
correct is ``1 - C(n-c, k) / C(n, k)`` (Chen et al., arXiv 2107.03374); the figure is its mean over tasks.
``fast@k`` counts as right only what is faster than the baseline beyond the noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, stdev
from typing import Any

from egg.bench.figures import StepOutcome
from egg.bench.rows import Row, latest
from egg.bench.statistics import Estimate, estimate, geomean
from egg.core.codec import to_json
from egg.core.step import Decision

PROMOTED = Decision.PROMOTED.value


@dataclass(frozen=True)
class StageGain:
    """What the steps of one stage brought."""

    stage: str
    tasks: int
    """That took a step in it and have an accepted kernel."""
    steps: int
    promoted: int
    gain: Estimate | None
    """Over those tasks; ``None`` where no GPU or model gave a step a gain."""


@dataclass(frozen=True)
class AtK:
    """The chance that one of ``k`` samples will do, as a mean over tasks."""

    k: int
    correct: float
    fast: float


@dataclass(frozen=True)
class Sampled:
    """Several benches of the same tasks."""

    samples: int
    tasks: int
    at: tuple[AtK, ...]
    geomeans: tuple[float | None, ...]
    """Of each sample over the baseline, over its correct and timed kernels."""
    spread: float | None
    """Standard deviation of those; ``None`` below two."""
    money: float
    tokens: int

    def to_json(self) -> dict[str, Any]:
        return to_json(self)


def stage_gains(rows: Sequence[Row]) -> tuple[StageGain, ...]:
    """One for each stage that took a step, in the order of the runs."""
    accepted = [row for row in rows if row.accepted]
    names = dict.fromkeys(step.stage for row in rows for step in row.steps)
    return tuple(_stage(name, rows, accepted) for name in names)


def _stage(name: str, rows: Sequence[Row], accepted: Sequence[Row]) -> StageGain:
    taken = [step for row in rows for step in row.steps if step.stage == name]
    inside = [[step for step in row.steps if step.stage == name] for row in accepted]
    inside = [steps for steps in inside if steps]
    timed = [steps for steps in inside if any(step.gain is not None for step in steps)]
    return StageGain(
        stage=name,
        tasks=len(inside),
        steps=len(taken),
        promoted=sum(step.decision == PROMOTED for step in taken),
        gain=estimate([_gain(steps) for steps in timed], geomean),
    )


def _gain(steps: Sequence[StepOutcome]) -> float:
    return math.prod(s.gain for s in steps if s.decision == PROMOTED and s.gain is not None)


def sampled(benches: Sequence[Sequence[Row]], baseline: str = "eager") -> Sampled:
    """The figures of several benches; a task that a bench has no row of counts as wrong in it."""
    found = [latest(rows) for rows in benches]
    keys = list(dict.fromkeys(key for rows in found for key in rows))
    count = len(found)
    means = tuple(_geomean(rows, baseline) for rows in found)
    known = [value for value in means if value is not None]
    spent = [row.spent for rows in found for row in rows.values()]
    return Sampled(
        samples=count,
        tasks=len(keys),
        at=tuple(_at(k, keys, found, baseline) for k in range(1, count + 1)),
        geomeans=means,
        spread=stdev(known) if len(known) > 1 else None,
        money=sum(one.money for one in spent),
        tokens=sum(one.tokens for one in spent),
    )


def _at(k: int, keys: Sequence[str], found: Sequence[Mapping[str, Row]], baseline: str) -> AtK:
    def chance(will_do: Sequence[Sequence[bool]]) -> float:
        return sum(pass_at(len(task), sum(task), k) for task in will_do) / max(1, len(will_do))

    rows = [[sample.get(key) for sample in found] for key in keys]
    right = [[row is not None and row.accepted for row in task] for task in rows]
    fast = [[row is not None and row.accepted and row.faster_than(baseline) for row in task] for task in rows]
    return AtK(k, chance(right), chance(fast))


def pass_at(samples: int, correct: int, k: int) -> float:
    """The chance that at least one of ``k`` of the ``samples`` is among the correct ones."""
    if not 1 <= k <= samples:
        raise ValueError(f"{k} of {samples} samples cannot be drawn")
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def _geomean(rows: Mapping[str, Row], baseline: str) -> float | None:
    timed = [f.median for row in rows.values() if row.accepted and (f := row.speedup(baseline)) is not None]
    return geometric_mean(timed) if timed else None
