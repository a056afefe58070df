"""Two benches side by side, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from egg.cli.render import clean
from egg.cli.tables import pairs, table
from egg.cli.words import one_line, plural
from egg.report.compare_report import MEANINGS
from egg.report.numbers import NONE, ends, share, share_ends, times

if TYPE_CHECKING:
    from egg.bench.compare import TaskComparison
    from egg.core.evaluation import Interval
    from egg.report.compare_report import CompareReport

_STYLES = {"faster": "green", "gained": "green", "slower": "red", "lost": "red"}
NAME = 60
"""Characters of a task's name."""


def compare_view(report: CompareReport, *, every: bool = False) -> RenderableType:
    """The verdict, the counts, and the tasks that changed; with ``every``, all tasks."""
    shown = report.ordered if every else report.changed
    hidden = len(report.ordered) - len(shown)
    parts: list[RenderableType] = [
        _headline(report),
        *(Text(f"not alike in {clean(one)}", style="yellow") for one in report.comparison.differences),
        "",
        _sides(report),
        "",
        _counts(report),
        "",
        pairs([(f"sign test, {name}", clean(result)) for name, result in report.tests]),
    ]
    if report.not_compared:
        parts += ["", pairs([(f"not compared, {why}", clean(tasks)) for why, tasks in report.not_compared])]
    if shown:
        parts += ["", _tasks(shown, report.comparison.baseline)]
    if hidden:
        parts.append(
            Text(f"{plural(hidden, 'task')} without a difference left out; --all shows them", style="dim")
        )
    return Group(*parts)


def _headline(report: CompareReport) -> Text:
    found = report.comparison
    better = found.significant and found.geomean is not None and found.geomean.value > 1
    style = "bold green" if better else "bold red" if found.significant else "bold cyan"
    return Text.assemble((f" {report.verdict.upper()} ", f"reverse {style}"), f"  {report.summary}")


def _sides(report: CompareReport) -> RenderableType:
    sides = zip("AB", (report.a, report.b), report.correct, strict=True)
    return pairs(
        [
            (
                letter,
                f"{clean(name)}: {found.count:,} of {found.total:,} correct ({share(found.value)}, "
                f"{share_ends(found)})",
            )
            for letter, name, found in sides
        ]
    )


def _counts(report: CompareReport) -> RenderableType:
    made = table("outcome", "tasks", "which means", numbers=[1])
    for outcome, number in report.counts:
        style = _STYLES.get(outcome.value, "")
        made.add_row(Text(outcome.value, style=style), f"{number:,}", MEANINGS[outcome])
    return made


def _tasks(tasks: Sequence[TaskComparison], baseline: str) -> RenderableType:
    over = clean(baseline)
    made = table("task", "outcome", f"A over {over}", f"B over {over}", "B over A", numbers=range(2, 5))
    for task in tasks:
        name = task.key if task.key == task.name else f"{task.key} {task.name}"
        outcome = Text(task.outcome.value, style=_STYLES.get(task.outcome.value, ""))
        made.add_row(one_line(name, NAME), outcome, _only(task.a), _only(task.b), _with_ends(task.ratio))
    return made


def _only(found: Interval | None) -> str:
    return times(found.median) if found is not None else NONE


def _with_ends(found: Interval | None) -> Text:
    if found is None:
        return Text(NONE)
    return Text.assemble(times(found.median), (f" {ends(found)}", "dim"), no_wrap=True)
