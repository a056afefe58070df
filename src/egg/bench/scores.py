"""What a bench came to: how much is correct, how much is fast, and what it took.

The central score is KernelBench's ``fast_p`` (arXiv 2502.10517): of *all* tasks, the fraction whose kernel
is correct and whose speedup over the baseline is strictly greater than ``p``. So a speedup of exactly ``p``
does not count, a task without a correct kernel never does, and ``fast_0`` is the rate of correct kernels.
Correct is whatever the judge here accepted. What is settled here besides:

- *Speedups are medians.* The mean, median and geometric mean are over the correct kernels that were timed
  against the baseline, as KernelBench's analysis takes its geometric mean; of none, there is no mean
  (KernelBench says 0). Beside it stands the geometric mean over *all* tasks with failed ones counted as
  1.0: the result of keeping the reference wherever no kernel is correct. Neither forgives failures
  quietly: each says over how many.
- *A correct kernel without a time* against a baseline (no GPU, or a reference that ``torch.compile`` could
  not take) counts as correct, never as faster than anything, and is left out of both means; ``untimed``
  says how many.
- *Missing counts as wrong*: give the suite's tasks, and those without a row are failures.
- *Degenerate tasks*, which trivial answers pass, are in the totals, so that those compare with others'
  totals, and apart: one group holds only them, another all the others.

Fractions carry Wilson's interval, means a bootstrap interval over tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from egg.bench.experiments import StageGain, stage_gains
from egg.bench.rows import BEST, Basis, Passed, Refused, Row, complete, latest
from egg.bench.statistics import Estimate, Share, estimate, geomean, mean, median
from egg.core.codec import to_json
from egg.core.source import Task

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
BASELINES = ("eager", "compile", "reduce-overhead")


@dataclass(frozen=True)
class FastP:
    """Of all tasks, those with a correct kernel more than ``p`` times as fast as the baseline."""

    p: float
    share: Share


@dataclass(frozen=True)
class Speedups:
    """Everything about speed, against one baseline at one precision."""

    baseline: str
    basis: Basis
    timed: int
    """Correct kernels that were timed against it."""
    untimed: int
    """Correct kernels that were not."""
    fast: tuple[FastP, ...]
    faster: Share
    """Of all tasks, those faster beyond the noise: the interval's lower end above one plus the noise
    floor."""
    mean: Estimate | None
    """Over the correct and timed, like the next two."""
    median: Estimate | None
    geomean: Estimate | None
    geomean_all: Estimate | None
    """Over all tasks but the untimed, failed ones counted as 1.0."""

    def fast_p(self, p: float) -> Share:
        return next(found.share for found in self.fast if found.p == p)


@dataclass(frozen=True)
class Cost:
    """What all tasks of a group took, failed ones included, and that divided by the accepted kernels."""

    tokens: int
    money: float
    unpriced_calls: int
    """Calls whose price is not known, and not in ``money``."""
    gpu_seconds: float
    wall_seconds: float
    tokens_per_kernel: float | None
    """Per accepted kernel, like the next two; ``None`` where there is none."""
    money_per_kernel: float | None
    gpu_seconds_per_kernel: float | None


@dataclass(frozen=True)
class Group:
    """Some tasks of a bench and their scores."""

    name: str
    tasks: int
    correct: Share
    degenerate: int
    """Tasks that trivial answers pass."""
    unaudited: int
    """Tasks for which that is not known."""
    kernelbench: Share
    """Of the correct kernels, those that pass KernelBench's own comparison, too."""
    kernelbench_static: Share
    """Of the correct kernels that were checked, those that pass KernelBench's own static check."""
    verdicts: Mapping[str, int]
    """How many ended how: ``accepted``, ``refused at correctness``, ``no kernel``, ``unable``."""
    speedups: tuple[Speedups, ...]
    cost: Cost

    def against(self, baseline: str, basis: Basis = Basis.MATCHED) -> Speedups | None:
        """``None`` where nothing was timed against it."""
        return next((s for s in self.speedups if (s.baseline, s.basis) == (baseline, basis)), None)


@dataclass(frozen=True)
class Scores:
    """A bench's scores: over all tasks, over the sound and the degenerate apart, and by what tasks are."""

    all: Group
    sound: Group
    """Without those that are known to be degenerate."""
    degenerate: Group
    levels: tuple[Group, ...]
    families: tuple[Group, ...]
    stages: tuple[StageGain, ...] = ()
    """What the steps of each stage brought, over all tasks."""

    def to_json(self) -> dict[str, Any]:
        return to_json(self)


def score(rows: Iterable[Row], tasks: Sequence[Task] | None = None) -> Scores:
    """Scores over the last row of each task, or, given the suite's ``tasks``, over exactly those."""
    counted = complete(rows, tasks) if tasks is not None else list(latest(rows).values())
    axes = _axes(counted)
    levels = sorted({row.level for row in counted if row.level is not None})
    families = sorted({row.family for row in counted})
    return Scores(
        all=_group("all", counted, axes),
        sound=_group("sound", [row for row in counted if not row.degenerate], axes),
        degenerate=_group("degenerate", [row for row in counted if row.degenerate], axes),
        levels=tuple(_group(f"level {n}", [r for r in counted if r.level == n], axes) for n in levels),
        families=tuple(_group(f.value, [r for r in counted if r.family is f], axes) for f in families),
        stages=stage_gains(counted),
    )


Axis = tuple[str, Basis]


def _axes(rows: Sequence[Row]) -> list[Axis]:
    """Baselines that were timed at all, in the usual order, the best of them last; eager even if it was not.

    The default precision is an axis of its own only where a policy made it differ from the matched one.
    """
    timed = {
        (opponent.name, opponent.basis)
        for row in rows
        if row.timing is not None
        for opponent in row.timing.opponents
    }
    axes: list[Axis] = []
    for basis in Basis:
        names = {name for name, at in timed if at is basis}
        if basis is Basis.MATCHED:
            names.add("eager")
        usual = [name for name in BASELINES if name in names]
        others = sorted(names.difference(BASELINES))
        best = [BEST] if len(names) > 1 else []
        axes += [(name, basis) for name in (*usual, *others, *best)]
    return axes


def _group(name: str, rows: Sequence[Row], axes: Sequence[Axis]) -> Group:
    accepted = sum(row.accepted for row in rows)
    return Group(
        name=name,
        tasks=len(rows),
        correct=Share(accepted, len(rows)),
        degenerate=sum(row.degenerate is True for row in rows),
        unaudited=sum(row.degenerate is None for row in rows),
        kernelbench=_share(row.kernelbench for row in rows if row.accepted),
        kernelbench_static=_share(row.kernelbench_static for row in rows if row.accepted),
        verdicts=dict(sorted(Counter(map(_ended, rows)).items(), key=lambda item: (-item[1], item[0]))),
        speedups=tuple(_speedups(rows, baseline, basis) for baseline, basis in axes),
        cost=_cost(rows, accepted),
    )


def _share(found: Iterable[bool | None]) -> Share:
    """Of what is known."""
    known = [value for value in found if value is not None]
    return Share(sum(known), len(known))


def _ended(row: Row) -> str:
    verdict = row.verdict
    return f"refused at {verdict.gate.value}" if isinstance(verdict, Refused) else verdict.kind


def _speedups(rows: Sequence[Row], baseline: str, basis: Basis) -> Speedups:
    correct = [row for row in rows if isinstance(row.verdict, Passed)]
    found = [found.median for row in correct if (found := row.speedup(baseline, basis)) is not None]
    failed, untimed = len(rows) - len(correct), len(correct) - len(found)
    known = bool(found) or not untimed
    return Speedups(
        baseline=baseline,
        basis=basis,
        timed=len(found),
        untimed=untimed,
        fast=tuple(FastP(p, Share(_faster_than(p, found, untimed), len(rows))) for p in THRESHOLDS),
        faster=Share(sum(row.faster_than(baseline, basis) for row in correct), len(rows)),
        mean=estimate(found, mean),
        median=estimate(found, median),
        geomean=estimate(found, geomean),
        geomean_all=estimate([*found, *[1.0] * failed], geomean) if known else None,
    )


def _faster_than(p: float, speedups: Sequence[float], untimed: int) -> int:
    """Any correct kernel is faster than zero, whether or not it was timed."""
    return sum(speedup > p for speedup in speedups) + (untimed if p == 0 else 0)


def _cost(rows: Sequence[Row], accepted: int) -> Cost:
    spent = [row.spent for row in rows]
    tokens, money = sum(s.tokens for s in spent), sum(s.money for s in spent)
    gpu_seconds = sum(s.gpu_seconds for s in spent)
    return Cost(
        tokens=tokens,
        money=money,
        unpriced_calls=sum(s.unpriced_calls for s in spent),
        gpu_seconds=gpu_seconds,
        wall_seconds=sum(s.wall_seconds for s in spent),
        tokens_per_kernel=tokens / accepted if accepted else None,
        money_per_kernel=money / accepted if accepted else None,
        gpu_seconds_per_kernel=gpu_seconds / accepted if accepted else None,
    )
