"""Two benches over the same tasks: where B is faster than A, where it is slower, where neither.

Kernels of two benches were timed in different sessions, between which clocks and temperature drift. So not
their times are compared but their speedups over a baseline that was timed in turns with each, which takes
the drift out. The ratio of the two speedups, B's over A's, is larger than one where B is faster.

A difference on one task is believed under two conditions. It exceeds what either kernel shows against
itself (both noise floors, and one percent at least), and the two speedups can be distinguished: where the
times of every round were kept, by the bootstrap interval of their ratio, rounds drawn anew on either side;
where they were not, by intervals that do not meet. Everything else is a tie.

Over all tasks that both have timed, the geometric mean of the ratios comes with a bootstrap interval over
tasks, and the count of wins and losses with a sign test. Kernels that only one of the two got right have no
ratio; they are counted apart, with a sign test of their own.

Benches under different terms, or on different GPUs, are not compared unless asked to: their ratio would
show the difference of terms. Tasks whose source differs are never compared, whatever their key says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from egg.bench.rows import BEST, Basis, Row, latest
from egg.bench.scores import BASELINES
from egg.bench.statistics import SEED, Estimate, estimate, geomean, median, percentiles, resampled, sign_test
from egg.core.codec import to_json
from egg.core.errors import UsageError
from egg.core.evaluation import Interval
from egg.engine.scoring import LEAST_GAIN


class Outcome(StrEnum):
    """What became of one task from A to B."""

    FASTER = "faster"
    SLOWER = "slower"
    TIED = "tied"
    GAINED = "gained"
    """Only B's kernel is correct."""
    LOST = "lost"
    """Only A's kernel is correct."""
    NEITHER = "neither"
    UNTIMED = "untimed"
    """Both are correct, and at least one was not timed against the baseline."""


@dataclass(frozen=True)
class TaskComparison:
    """One task in both benches."""

    key: str
    name: str
    outcome: Outcome
    a: Interval | None
    """A's speedup over the baseline."""
    b: Interval | None
    ratio: Interval | None
    """B's speedup over A's; larger than one is in B's favour."""
    by_rounds: bool = False
    """Whether the ratio's interval comes from the times of every round, not from the ends of two
    intervals."""


@dataclass(frozen=True)
class Comparison:
    """Two benches, task by task and in all."""

    baseline: str
    basis: Basis
    tasks: tuple[TaskComparison, ...]
    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]
    changed: tuple[str, ...]
    """Keys under which the two have different tasks."""
    outcomes: Mapping[Outcome, int]
    geomean: Estimate | None
    """Of the ratios, over the tasks that both have timed."""
    sign_test: float
    """How likely wins and losses would be as uneven if B were no different; ties left out."""
    correct_sign_test: float
    """The same for the tasks that only one of the two got right."""
    differences: tuple[str, ...]
    """In terms, GPU or versions, in words; empty where the benches are alike."""

    @property
    def significant(self) -> bool:
        """Whether the geometric mean's interval leaves out one."""
        found = self.geomean
        if found is None or found.low is None or found.high is None:
            return False
        return found.low > 1.0 or found.high < 1.0

    def to_json(self) -> dict[str, Any]:
        return to_json(self)


def compare(
    a: Iterable[Row],
    b: Iterable[Row],
    *,
    baseline: str = "eager",
    basis: Basis = Basis.MATCHED,
    unlike: bool = False,
) -> Comparison:
    """B against A. ``unlike`` compares benches of different policies or GPUs all the same, and says so."""
    first, second = latest(a), latest(b)
    _check_baseline(baseline, [*first.values(), *second.values()])
    hard, soft = _differences(first.values(), second.values())
    if hard and not unlike:
        raise UsageError(
            f"these benches are not alike: {'; '.join(hard)}",
            "compare benches of the same policy on the same GPU, or compare unlike ones with --unlike",
        )
    shared = [key for key in first if key in second]
    changed = [key for key in shared if first[key].task != second[key].task]
    tasks = [_task(first[key], second[key], baseline, basis) for key in shared if key not in changed]
    counted = {outcome: sum(task.outcome is outcome for task in tasks) for outcome in Outcome}
    return Comparison(
        baseline=baseline,
        basis=basis,
        tasks=tuple(tasks),
        only_in_a=tuple(key for key in first if key not in second),
        only_in_b=tuple(key for key in second if key not in first),
        changed=tuple(changed),
        outcomes=counted,
        geomean=estimate([task.ratio.median for task in tasks if task.ratio is not None], geomean),
        sign_test=sign_test(counted[Outcome.FASTER], counted[Outcome.SLOWER]),
        correct_sign_test=sign_test(counted[Outcome.GAINED], counted[Outcome.LOST]),
        differences=(*hard, *soft),
    )


def _check_baseline(name: str, rows: Iterable[Row]) -> None:
    """One that is misspelt would make every task look as if it had not been timed."""
    timed = (row.timing.opponents for row in rows if row.timing is not None)
    known = dict.fromkeys((*BASELINES, *(opponent.name for opponents in timed for opponent in opponents)))
    hint = f"name one: {', '.join(known)}"
    if name == BEST:
        raise UsageError("two benches are compared over one baseline, not over the best of each", hint)
    if name not in known:
        raise UsageError(f"no baseline is called {name!r}", hint)


# -- one task ----------------------------------------------------------------------------------------


def _task(a: Row, b: Row, baseline: str, basis: Basis) -> TaskComparison:
    ours, theirs = a.speedup(baseline, basis), b.speedup(baseline, basis)
    if ours is None or theirs is None:
        return TaskComparison(a.key, a.name, _untimed(a, b), ours, theirs, None)
    rounds = _round_ratios(a, baseline, basis), _round_ratios(b, baseline, basis)
    by_rounds = min(map(len, rounds)) > 1
    ratio = _by_rounds(*rounds) if by_rounds else _by_ends(ours, theirs)
    apart = ratio.low > 1 or ratio.high < 1
    outcome = _outcome(ratio.median, max(_noise(a), _noise(b), LEAST_GAIN)) if apart else Outcome.TIED
    return TaskComparison(a.key, a.name, outcome, ours, theirs, ratio, by_rounds)


def _untimed(a: Row, b: Row) -> Outcome:
    match a.accepted, b.accepted:
        case True, True:
            return Outcome.UNTIMED
        case False, True:
            return Outcome.GAINED
        case True, False:
            return Outcome.LOST
    return Outcome.NEITHER


def _outcome(ratio: float, noise: float) -> Outcome:
    """The same distance from one counts in either direction: 1.25 and its inverse are as far."""
    if ratio > 1 + noise:
        return Outcome.FASTER
    return Outcome.SLOWER if 1 / ratio > 1 + noise else Outcome.TIED


def _noise(row: Row) -> float:
    return row.timing.noise_floor if row.timing is not None else 0.0


def _round_ratios(row: Row, baseline: str, basis: Basis) -> list[float]:
    """The speedup within each round."""
    opponent, timing = row.opponent(baseline, basis), row.timing
    if opponent is None or timing is None or not opponent.rounds:
        return []
    return [theirs / ours for ours, theirs in zip(timing.rounds, opponent.rounds, strict=True)]


def _by_rounds(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Both medians drawn anew, from different random numbers: the two sessions had nothing in common.

    Each side is drawn from either stream, and the interval is taken of logarithms, so that comparing the
    other way round gives exactly the inverse.
    """
    (a_one, a_other), (b_one, b_other) = (
        [np.log(median(resampled(np.asarray(rounds), seed))) for seed in (SEED, SEED + 1)]
        for rounds in (a, b)
    )
    low, high = map(math.exp, percentiles(np.concatenate([b_other - a_one, b_one - a_other])))
    ratio = float(np.median(b) / np.median(a))
    return Interval(ratio, min(low, ratio), max(high, ratio))


def _by_ends(a: Interval, b: Interval) -> Interval:
    """Includes one exactly where the two intervals meet."""
    return Interval(b.median / a.median, b.low / a.high, b.high / a.low)


# -- terms -------------------------------------------------------------------------------------------


def _differences(a: Iterable[Row], b: Iterable[Row]) -> tuple[list[str], list[str]]:
    """What forbids a comparison, and what is only worth knowing."""
    first, second = list(a), list(b)
    hard = [
        ("precision", [{row.policy.precision.value for row in rows} for rows in (first, second)]),
        ("library calls", [{row.policy.library_calls.value for row in rows} for rows in (first, second)]),
        ("level", [{row.policy.level.value for row in rows if row.accepted} for rows in (first, second)]),
        ("GPU", [{row.timing.gpu for row in rows if row.timing is not None} for rows in (first, second)]),
    ]
    names = ("egg", "torch", "triton", "python", "driver")
    soft = [
        (n, [{r.versions[n] for r in rows if n in r.versions} for rows in (first, second)]) for n in names
    ]
    return [_both(*d) for d in hard if _differ(d[1])], [_both(*d) for d in soft if _differ(d[1])]


def _differ(found: Sequence[set[str]]) -> bool:
    """More than one in all, where both sides say something."""
    return all(found) and len(set.union(*found)) > 1


def _both(what: str, found: Sequence[set[str]]) -> str:
    return f"{what}: A {' and '.join(sorted(found[0]))}, B {' and '.join(sorted(found[1]))}"
