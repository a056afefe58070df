"""Two benches side by side: what a page, a Markdown file and a terminal say of their comparison alike."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from egg.bench.compare import Comparison, Outcome, TaskComparison, compare
from egg.bench.row_files import read_rows
from egg.bench.rows import Basis, Row
from egg.bench.statistics import Share
from egg.core.errors import UsageError
from egg.report.bench_report import ROWS, Facts
from egg.report.numbers import ends, opponent, plural, times

MEANINGS = {
    Outcome.FASTER: "B's kernel is faster, beyond the noise of both",
    Outcome.SLOWER: "B's kernel is slower, beyond the noise of both",
    Outcome.TIED: "no significant difference",
    Outcome.GAINED: "only B's kernel is correct",
    Outcome.LOST: "only A's kernel is correct",
    Outcome.NEITHER: "neither has a correct kernel",
    Outcome.UNTIMED: "both are correct, and at least one was not timed",
}
_ORDER = (
    Outcome.LOST,
    Outcome.SLOWER,
    Outcome.GAINED,
    Outcome.FASTER,
    Outcome.UNTIMED,
    Outcome.TIED,
    Outcome.NEITHER,
)
"""What a reader looks for first: what B made worse, then what it made better."""
_NOTHING_CHANGED = (Outcome.TIED, Outcome.NEITHER, Outcome.UNTIMED)


@dataclass(frozen=True)
class CompareReport:
    """Bench B held against bench A."""

    a: str
    b: str
    comparison: Comparison

    @property
    def verdict(self) -> str:
        """In a few words, which of the two has the faster kernels where both have one."""
        if self.comparison.geomean is None:
            return "not comparable in speed"
        if not self.comparison.significant:
            return "no significant difference"
        return "B is faster" if self.comparison.geomean.value > 1 else "A is faster"

    @property
    def summary(self) -> str:
        """The verdict's figures, as a sentence without its full stop."""
        found = self.comparison.geomean
        if found is None:
            return f"no task was timed over {self.over} in both"
        between = f" ({ends(found)})" if found.low is not None else ""
        return (
            f"B's kernels are {times(found.value)}{between} as fast as A's, by the geometric mean over "
            f"{plural(found.count, 'task')} that both have timed against {self.over}"
        )

    @property
    def over(self) -> str:
        at = "" if self.comparison.basis is Basis.MATCHED else " at PyTorch's default precision"
        return opponent(self.comparison.baseline) + at

    @property
    def counts(self) -> tuple[tuple[Outcome, int], ...]:
        """Every outcome that occurred, in the order in which tasks are shown."""
        counted = self.comparison.outcomes
        return tuple((outcome, counted[outcome]) for outcome in _ORDER if counted[outcome])

    @property
    def correct(self) -> tuple[Share, Share]:
        """A's correct kernels and B's, of the tasks that are compared."""
        counted, total = self.comparison.outcomes, len(self.comparison.tasks)
        both = total - sum(counted[o] for o in (Outcome.GAINED, Outcome.LOST, Outcome.NEITHER))
        return Share(both + counted[Outcome.LOST], total), Share(both + counted[Outcome.GAINED], total)

    @property
    def ordered(self) -> tuple[TaskComparison, ...]:
        """All tasks, those that changed first, the largest change of each kind before smaller ones."""
        return tuple(sorted(self.comparison.tasks, key=_place))

    @property
    def changed(self) -> tuple[TaskComparison, ...]:
        return tuple(task for task in self.ordered if task.outcome not in _NOTHING_CHANGED)

    @property
    def timed(self) -> tuple[TaskComparison, ...]:
        """Tasks with a ratio, the slowest for B first."""
        found = [(task.ratio.median, task) for task in self.comparison.tasks if task.ratio is not None]
        return tuple(task for _, task in sorted(found, key=lambda pair: pair[0]))

    @property
    def tests(self) -> Facts:
        """How likely the counts would be as uneven by chance alone."""
        counted = self.comparison.outcomes
        speed = f"{counted[Outcome.FASTER]} faster, {counted[Outcome.SLOWER]} slower"
        right = f"{counted[Outcome.GAINED]} gained, {counted[Outcome.LOST]} lost"
        return (
            ("speed", f"{speed}: p = {self.comparison.sign_test:.2g}"),
            ("correctness", f"{right}: p = {self.comparison.correct_sign_test:.2g}"),
        )

    @property
    def not_compared(self) -> Facts:
        """Tasks that only one bench has, or that differ under one name."""
        left_out = (
            ("only in A", self.comparison.only_in_a),
            ("only in B", self.comparison.only_in_b),
            ("another task under the same name", self.comparison.changed),
        )
        return tuple((why, _some(keys)) for why, keys in left_out if keys)


def read_comparison(
    a: Path, b: Path, *, baseline: str = "eager", basis: Basis = Basis.MATCHED, unlike: bool = False
) -> CompareReport:
    """Two benches' folders, or their files of rows; ``unlike`` allows different options."""
    found = compare(_rows(a), _rows(b), baseline=baseline, basis=basis, unlike=unlike)
    if not found.tasks:
        raise UsageError(f"{a} and {b} have no task in common", "compare benches of one suite")
    return CompareReport(str(a), str(b), found)


def _rows(path: Path) -> list[Row]:
    file = path / ROWS if path.is_dir() else path
    if not file.is_file():
        raise UsageError(f"no bench at {path}", f"a bench is a folder with {ROWS}, or such a file")
    rows = read_rows(file)
    if not rows:
        raise UsageError(f"{path} has no rows yet", "wait until its first task has ended")
    return rows


def _place(task: TaskComparison) -> tuple[int, float]:
    """Within an outcome, the ratio furthest from one comes first, whichever way it points."""
    ratio = task.ratio.median if task.ratio is not None else 1.0
    return _ORDER.index(task.outcome), min(ratio, 1 / ratio)


def _some(keys: tuple[str, ...], shown: int = 8) -> str:
    more = f", and {len(keys) - shown:,} more" if len(keys) > shown else ""
    return f"{plural(len(keys), 'task')}: {', '.join(keys[:shown])}{more}"
