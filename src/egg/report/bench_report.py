"""Everything a page about a bench shows, made from its rows alone."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from egg.bench.families import WorkFamily
from egg.bench.row_files import read_rows
from egg.bench.rows import BEST, Basis, NoKernel, Passed, Refused, Row, Unable, complete, latest
from egg.bench.scores import Group, Scores, Speedups, score
from egg.bench.suites import load
from egg.core.bottleneck import MEANINGS, Limiter
from egg.core.errors import UsageError
from egg.core.evaluation import Interval
from egg.core.source import Task
from egg.report.numbers import NONE, opponent, plural, share

ROWS = "rows.jsonl"
"""The file that makes a folder a bench."""
TASKS = "tasks.jsonl"
"""Beside it, the tasks that were to be run: those without a row yet count as wrong."""
Facts = tuple[tuple[str, str], ...]


class Outcome(StrEnum):
    """How a task ended, in the one word that a table has room for; speeds are over the best baseline."""

    FASTER = "faster"
    EVEN = "even"
    SLOWER = "slower"
    UNTIMED = "correct, not timed"
    REFUSED = "refused"
    NO_KERNEL = "no kernel"
    UNABLE = "machine unable"
    NOT_RUN = "not run"

    @property
    def correct(self) -> bool:
        return self in (Outcome.FASTER, Outcome.EVEN, Outcome.SLOWER, Outcome.UNTIMED)


@dataclass(frozen=True)
class TaskLine:
    """One row with what is read off it."""

    row: Row
    waiting: bool = False
    """Whether the bench has no row of the task yet: the one here stands for it in the scores, as wrong."""

    @property
    def title(self) -> str:
        """The name beside the key, without what repeats it: ``1/23 23_Softmax_`` is ``1/23 Softmax``."""
        name = self.row.name.removeprefix(f"{self.row.problem}_").strip("_")
        return name if name != self.row.key else ""

    @property
    def outcome(self) -> Outcome:
        if self.waiting:
            return Outcome.NOT_RUN
        match self.row.verdict:
            case Refused():
                return Outcome.REFUSED
            case NoKernel():
                return Outcome.NO_KERNEL
            case Unable():
                return Outcome.UNABLE
        return self.against(BEST)

    def against(self, baseline: str) -> Outcome:
        """Of a correct kernel: faster or slower than ``baseline`` beyond the noise, or neither."""
        found, timing = self.row.speedup(baseline), self.row.timing
        if found is None or timing is None:
            return Outcome.UNTIMED
        if self.row.faster_than(baseline):
            return Outcome.FASTER
        return Outcome.SLOWER if found.high * (1 + timing.noise_floor) < 1 else Outcome.EVEN

    @property
    def why(self) -> str:
        """What stands in the way: a gate and its reason, or what a correct kernel is held back by."""
        match self.row.verdict:
            case Refused(gate=gate, reason=reason):
                return f"at {gate.value}: {reason}"
            case NoKernel(reason=reason) | Unable(reason=reason):
                return reason
            case Passed(limiter=limiter) if limiter in list(Limiter):
                return MEANINGS[Limiter(limiter)]
            case Passed(limiter=limiter):
                return limiter

    @property
    def evidence(self) -> str:
        return self.row.verdict.evidence if isinstance(self.row.verdict, Refused) else ""

    @property
    def passed(self) -> Passed | None:
        return self.row.verdict if isinstance(self.row.verdict, Passed) else None

    @property
    def kernelbench(self) -> tuple[str, str]:
        """What KernelBench's own comparison and static check say, for two columns."""
        return _passes(self.row.kernelbench), _passes(self.row.kernelbench_static)

    @property
    def milliseconds(self) -> float | None:
        return self.row.timing.milliseconds.median if self.row.timing is not None else None

    @property
    def headroom(self) -> float | None:
        """How many times the roofline floor it takes."""
        floor = self.passed.floor_milliseconds if self.passed is not None else None
        return self.milliseconds / floor if self.milliseconds is not None and floor else None

    @property
    def below_floor(self) -> bool:
        """Faster than the model's least time for the program as written, beyond what rounding shows."""
        return self.headroom is not None and self.headroom < 0.995

    @property
    def details(self) -> Facts:
        row, passed = self.row, self.passed
        facts = [("name", row.name if row.name not in (row.key, self.title) else "")]
        facts += [("why" if not row.accepted else "held back by", self.why), ("evidence", self.evidence)]
        if passed is not None:
            facts += [
                ("launches", str(passed.launches)),
                (
                    "own kernels",
                    f"{share(passed.own_share)} of the time" if passed.own_share is not None else "",
                ),
                ("library calls", ", ".join(f"{n} ×{c}" for n, c in passed.library_ops.items())),
                ("error", f"{passed.relative_error:.1e}, the reference's own {passed.reference_error:.1e}"),
                ("KernelBench's rule", _passes(passed.kernelbench)),
            ]
        if row.kernelbench_flags is not None:
            flags = ", ".join(row.kernelbench_flags)
            facts += [("KernelBench's static check", f"flags {flags}" if flags else "passes")]
        facts += [("note", warning) for warning in row.warnings]
        facts += [(name.replace("_", " "), str(value)) for name, value in row.notes.items()]
        facts += [("task", row.task), ("kernel", row.kernel or ""), ("run", row.run)]
        return tuple((name, value) for name, value in facts if value)


@dataclass(frozen=True)
class BenchReport:
    """All rows of a bench and the scores over them."""

    name: str
    rows: tuple[Row, ...]
    scores: Scores
    rows_hash: str = ""
    """SHA-256 of the file of rows."""
    waiting: frozenset[str] = frozenset()
    """Keys of the tasks that have no row yet."""

    @property
    def title(self) -> str:
        return self.name

    @cached_property
    def lines(self) -> tuple[TaskLine, ...]:
        return tuple(TaskLine(row, row.key in self.waiting) for row in self.rows)

    @property
    def overall(self) -> Group:
        return self.scores.all

    @property
    def timed(self) -> tuple[Speedups, ...]:
        """Baselines with at least one time, in the usual order."""
        return tuple(found for found in self.overall.speedups if found.timed)

    @property
    def headline(self) -> tuple[Speedups, ...]:
        """Those at matched precision."""
        return tuple(s for s in self.timed if s.basis is Basis.MATCHED and s.baseline != BEST)[:3]

    @property
    def baselines(self) -> tuple[str, ...]:
        """Each baseline at matched precision."""
        return tuple(s.baseline for s in self.timed if s.basis is Basis.MATCHED and s.baseline != BEST)

    @property
    def strictest(self) -> str:
        """The baseline that a loss is counted against."""
        return BEST if len(self.baselines) > 1 else next(iter(self.baselines), "eager")

    @property
    def compared(self) -> tuple[Speedups, ...]:
        """What a page compares with: first what outcomes are against, then each baseline."""
        found = (self.overall.against(name) for name in dict.fromkeys((self.strictest, *self.baselines)))
        return tuple(s for s in found if s is not None and s.timed)

    @property
    def parts(self) -> tuple[tuple[str, tuple[Group, ...]], ...]:
        """Groups of tasks by what they are; a part with one group only says nothing new."""
        both = (self.scores.sound, self.scores.degenerate)
        audited = tuple(group for group in both if group.tasks) if self.scores.degenerate.tasks else ()
        parts = (("level", self.scores.levels), ("family", self.scores.families), ("audit", audited))
        return tuple((name, groups) for name, groups in parts if len(groups) > 1)

    @property
    def drawn_groups(self) -> tuple[str, tuple[Group, ...]]:
        """The rows of one picture: families; levels where the rows name no family; else all tasks."""
        if len(self.scores.families) > 1:
            return "family", self.scores.families
        if len(self.scores.levels) > 1:
            return "level", self.scores.levels
        return "bench", (self.overall,)

    @property
    def losses(self) -> tuple[TaskLine, ...]:
        """Correct kernels that some baseline beats beyond the noise, the worst first."""
        beaten = [line for line in self.lines if line.against(self.strictest) is Outcome.SLOWER]
        return tuple(sorted(beaten, key=lambda line: _median(line.row.speedup(self.strictest))))

    @property
    def failures(self) -> tuple[tuple[str, tuple[TaskLine, ...]], ...]:
        """Tasks without a correct kernel, by why."""
        failed = [line for line in self.lines if not line.outcome.correct]
        kinds = Counter(map(_kind, failed)).most_common()
        return tuple((kind, tuple(line for line in failed if _kind(line) == kind)) for kind, _ in kinds)

    @property
    def limiters(self) -> tuple[tuple[str, int], ...]:
        """What holds the losing kernels back, by how many."""
        return tuple(Counter(line.why for line in self.losses if line.why).most_common())

    # -- what occurs -------------------------------------------------------------------------------

    @property
    def levels(self) -> tuple[int, ...]:
        return tuple(sorted({row.level for row in self.rows if row.level is not None}))

    @property
    def families(self) -> tuple[WorkFamily, ...]:
        return tuple(sorted({row.family for row in self.rows}))

    @property
    def checked(self) -> tuple[bool, bool]:
        """Which of KernelBench's rules is known of any kernel: its comparison, its static check."""
        return bool(self.overall.kernelbench.total), bool(self.overall.kernelbench_static.total)

    @property
    def kernelbench(self) -> Facts:
        """How many correct kernels pass KernelBench's own rules; what is not known is left out."""
        overall = self.overall
        rules = (("comparison", overall.kernelbench), ("static check", overall.kernelbench_static))
        return tuple((name, f"{rule.count} of {rule.total}") for name, rule in rules if rule.total)

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        found = {line.outcome for line in self.lines}
        return tuple(outcome for outcome in Outcome if outcome in found)

    @property
    def runs(self) -> bool:
        """Whether any row was made by a run: kernels of other systems were only judged."""
        return any(row.run for row in self.rows)

    @property
    def priced(self) -> bool:
        return any(row.spent.tokens or row.spent.money for row in self.rows)

    @property
    def below_floor(self) -> int:
        return sum(line.below_floor for line in self.lines)

    @property
    def options(self) -> Facts:
        """What all rows were made under; where they differ, all of it."""
        facts = [
            ("GPU", self._every(lambda row: row.timing.gpu if row.timing is not None else "")),
            ("precision", self._every(lambda row: row.policy.precision.value)),
            ("library calls", self._every(lambda row: row.policy.library_calls.value)),
            ("judged at", self._every(lambda row: row.policy.level.value if row.accepted else "")),
        ]
        names = dict.fromkeys(name for row in self.rows for name in row.settings)
        facts += [(name, self._every(lambda row, name=name: row.settings.get(name, ""))) for name in names]
        return tuple((name, value) for name, value in facts if value)

    @property
    def environment(self) -> Facts:
        names = dict.fromkeys(name for row in self.rows for name in row.versions)
        facts = [(name, self._every(lambda row, name=name: row.versions.get(name, ""))) for name in names]
        if self.rows_hash:
            facts.append(("rows", f"{plural(len(self.rows), 'task')}, SHA-256 {self.rows_hash}"))
        return tuple(facts)

    def _every(self, read: Callable[[Row], str]) -> str:
        counted = Counter(value for row in self.rows if (value := read(row)))
        if len(counted) <= 1:
            return next(iter(counted), "")
        return ", ".join(f"{value} ({count})" for value, count in counted.most_common())


def _passes(found: bool | None) -> str:
    return NONE if found is None else "passes" if found else "fails"


def bench_report(
    name: str, rows: Iterable[Row], rows_hash: str = "", tasks: Sequence[Task] | None = None
) -> BenchReport:
    """Over the last row of each task; given the suite's ``tasks``, those without a row are there as wrong."""
    found = latest(rows)
    kept = tuple(found.values() if tasks is None else complete(found.values(), tasks))
    if not kept:
        raise UsageError(f"{name} has no rows yet", "wait until the first task has ended")
    waiting = frozenset(row.key for row in kept) - found.keys()
    return BenchReport(name, kept, score(kept), rows_hash, waiting)


def read_bench(path: Path) -> BenchReport:
    """A bench's folder, or its file of rows."""
    file = path / ROWS if path.is_dir() else path
    if not path.exists():
        raise UsageError(f"no bench at {path}", f"a bench is a folder with {ROWS}, or such a file")
    listed = file.with_name(TASKS)
    tasks = load(listed).tasks if file.name == ROWS and listed.is_file() else None
    name = (path if path.is_dir() else path.parent if path.name == ROWS else path).resolve()
    rows: Sequence[Row] = read_rows(file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
    return bench_report(name.name if path.is_dir() or path.name == ROWS else name.stem, rows, digest, tasks)


def baseline_name(found: Speedups) -> str:
    return opponent(found.baseline) + (
        "" if found.basis is Basis.MATCHED else ", PyTorch's default precision"
    )


def _median(found: Interval | None) -> float:
    return found.median if found is not None else 0.0


def _kind(line: TaskLine) -> str:
    verdict = line.row.verdict
    return f"refused at {verdict.gate.value}" if isinstance(verdict, Refused) else line.outcome.value
