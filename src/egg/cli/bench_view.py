"""A bench on the terminal: scores, groups of tasks, cost, losses, and the paths of its files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from egg.bench.experiments import stage_gains
from egg.bench.rows import BEST, Basis, Refused
from egg.cli.render import clean
from egg.cli.tables import pairs, table
from egg.cli.words import one_line, plural
from egg.report.bench_report import Outcome
from egg.report.numbers import NONE, count, ends, money, seconds, share, share_ends, time, times

if TYPE_CHECKING:
    from egg.bench.experiments import StageGain
    from egg.bench.scores import Cost, Speedups
    from egg.bench.scores import Group as Tasks
    from egg.bench.statistics import Estimate, Share
    from egg.report.bench_report import BenchReport, TaskLine

TASKS_SHOWN = 12
"""A bench of at most so many tasks is listed task by task."""
LOSSES_SHOWN = 10
FAILURES_SHOWN = 5
"""Of each kind."""
WHY = 90
"""Characters of a reason in a table."""
_STYLES = {
    Outcome.FASTER: "green",
    Outcome.SLOWER: "red",
    Outcome.REFUSED: "red",
    Outcome.NO_KERNEL: "red",
    Outcome.UNABLE: "yellow",
}


def bench_view(report: BenchReport, *, whole: bool = False) -> RenderableType:
    """The scores of a bench; ``whole``, with every table for every level and family, and all tasks."""
    parts: list[RenderableType] = [_headline(report), _terms(report), ""]
    parts += _tables(report.overall)
    for name, groups in report.parts:
        parts += [Text(f"\nby {name}", style="bold"), _groups(name, groups, report)]
        for group in groups if whole else ():
            parts += [Text(f"\n{name} {clean(group.name.removeprefix(f'{name} '))}", style="bold")]
            parts += _tables(group)
    if stages := stage_gains(report.rows):
        parts += [Text("\nby stage", style="bold"), _stages(stages)]
    if whole or len(report.rows) <= TASKS_SHOWN:
        parts += ["", _tasks(report)]
    parts += ["", *_footnotes(report), _cost(report.overall.cost)]
    return Group(*parts, *_losses(report), *_failures(report))


def _headline(report: BenchReport) -> Text:
    found = report.overall.correct
    style = "bold green" if found.count == found.total else "bold yellow" if found.count else "bold red"
    line = Text.assemble((f" {share(found.value)} CORRECT ", f"reverse {style}"), "  ")
    line.append(clean(report.name), style="bold")
    line.append(f"  {found.count:,} of {plural(found.total, 'task')} ({share_ends(found)})")
    for over in report.headline[:2]:
        if over.geomean is not None:
            line.append(f", {times(over.geomean.value)} {over.baseline}")
    return line


def _terms(report: BenchReport) -> Text:
    values = " · ".join(f"{name} {clean(value)}" for name, value in report.options)
    return Text(values, style="dim")


# -- scores ------------------------------------------------------------------------------------------


def _tables(group: Tasks) -> list[RenderableType]:
    """How many tasks are how fast, and how fast they are; or why that is unknown."""
    timed = [found for found in group.speedups if found.timed]
    if not timed:
        why = "no GPU timed these kernels: how fast they are is not known"
        return [Text(why if group.correct.count else "no correct kernel", style="cyan")]
    return [_fast(timed), "", _speeds(timed)]


def _fast(found: Sequence[Speedups]) -> RenderableType:
    thresholds = [fast.p for fast in found[0].fast]
    made = table(
        "faster than p times",
        "timed",
        *(f"p = {p:g}" if i == 0 else f"{p:g}" for i, p in enumerate(thresholds)),
        "beyond noise",
        numbers=range(1, 3 + len(thresholds)),
    )
    for over in found:
        shares = [share(fast.share.value) for fast in over.fast]
        made.add_row(_opponent(over), f"{over.timed:,}", *shares, _part(over.faster))
    return made


def _speeds(found: Sequence[Speedups]) -> RenderableType:
    made = table("speedup over", "geomean", "median", "mean", "geomean, failed as 1", numbers=range(1, 5))
    for over in found:
        figures = (over.geomean, over.median, over.mean, over.geomean_all)
        made.add_row(_opponent(over), *map(_figure, figures))
    return made


def _groups(name: str, groups: Iterable[Tasks], report: BenchReport) -> RenderableType:
    over = report.headline[:2]
    speeds = [word for found in over for word in (f"over {found.baseline}", "fast_1")]
    made = table(name, "tasks", "correct", *speeds, numbers=range(1, 3 + len(speeds)))
    for group in groups:
        cells: list[RenderableType] = [
            clean(group.name.removeprefix(f"{name} ")),
            f"{group.tasks:,}",
            _part(group.correct),
        ]
        for found in over:
            own = group.against(found.baseline)
            cells += [_figure(own.geomean), share(own.fast_p(1.0).value)] if own is not None else [NONE, NONE]
        made.add_row(*cells)
    return made


def _stages(stages: Iterable[StageGain]) -> RenderableType:
    """What the steps of each stage brought to the tasks that took any."""
    made = table("stage", "tasks", "steps", "promoted", "geomean gain", numbers=range(1, 5))
    for found in stages:
        steps = f"{found.steps:,}", f"{found.promoted:,}"
        made.add_row(clean(found.stage), f"{found.tasks:,}", *steps, _figure(found.gain))
    return made


def _tasks(report: BenchReport) -> RenderableType:
    speeds = [f"over {clean(name)}" for name in report.baselines]
    rules = ("KernelBench", "its static\ncheck")
    made = table("task", "outcome", *speeds, "time", *rules, "family", numbers=range(2, 3 + len(speeds)))
    for line in report.lines:
        found = [line.row.speedup(name) for name in report.baselines]
        over = [times(speedup.median) if speedup is not None else NONE for speedup in found]
        outcome = Text(line.outcome.value, style=_STYLES.get(line.outcome, ""))
        rest = (time(line.milliseconds), *line.kernelbench, line.row.family.value)
        made.add_row(_named(line), outcome, *over, *rest)
    return made


def _footnotes(report: BenchReport) -> list[RenderableType]:
    group = report.overall
    notes = []
    if group.degenerate:
        are = "is" if group.degenerate == 1 else "are"
        passed = f"{plural(group.degenerate, 'task')} that trivial answers pass"
        notes.append(f"{passed} {are} in the totals, and apart by audit")
    if group.unaudited:
        were = "was" if group.unaudited == 1 else "were"
        notes.append(f"{plural(group.unaudited, 'task')} {were} not audited")
    untimed = max((found.untimed for found in group.speedups if found.timed), default=0)
    if untimed:
        notes.append(f"{plural(untimed, 'correct kernel')} without a time against some baseline")
    if report.kernelbench:
        values = ", ".join(f"{name} {passed}" for name, passed in report.kernelbench)
        notes.append(f"by KernelBench's own rules, of the correct kernels: {values}")
    if report.timed:
        notes.append("intervals are 95%, over tasks; missing and refused count as wrong")
    return [Text(note, style="dim") for note in notes]


def _cost(cost: Cost) -> RenderableType:
    """What was used in all and, where there is a correct kernel, for each of those."""
    shown = [("GPU time", seconds(cost.gpu_seconds), seconds(cost.gpu_seconds_per_kernel))]
    if not cost.gpu_seconds:
        shown = [("GPU time", "none", NONE)]
    shown.append(("work", seconds(cost.wall_seconds), NONE))
    if cost.tokens or cost.money or cost.unpriced_calls:
        unpriced = f" and {plural(cost.unpriced_calls, 'unpriced call')}" if cost.unpriced_calls else ""
        shown.append(("tokens", count(cost.tokens), count(cost.tokens_per_kernel)))
        shown.append(("money", money(cost.money) + unpriced, money(cost.money_per_kernel)))
    used = [
        f"{name} {whole}" + (f" ({each} per correct kernel)" if each != NONE else "")
        for name, whole, each in shown
    ]
    return pairs([("used", "; ".join(used))])


def _opponent(found: Speedups) -> str:
    name = "the best of them" if found.baseline == BEST else found.baseline
    return clean(name) + ("" if found.basis is Basis.MATCHED else ", default precision")


def _figure(found: Estimate | None) -> Text:
    if found is None:
        return Text(NONE)
    between = (f" {ends(found)}", "dim") if found.low is not None else ""
    return Text.assemble(times(found.value), between, no_wrap=True)


def _part(found: Share) -> Text:
    between = (f" {share_ends(found)}", "dim") if found.value is not None else ""
    return Text.assemble(share(found.value), between, no_wrap=True)


# -- what was lost -----------------------------------------------------------------------------------


def _losses(report: BenchReport) -> list[RenderableType]:
    """Correct kernels that a baseline beats beyond the noise, the worst first."""
    lost = report.losses
    if not lost:
        return []
    beaten_by = "the best baseline" if report.strictest == BEST else clean(report.strictest)
    made = table("task", *(f"over {name}" for name in report.baselines), "held back by")
    for line in lost[:LOSSES_SHOWN]:
        speeds = [line.row.speedup(name) for name in report.baselines]
        shown = [times(found.median) if found is not None else NONE for found in speeds]
        made.add_row(_named(line), *shown, one_line(line.why or "not known", WHY))
    head = Text(f"\nslower than {beaten_by}: {len(lost):,}", style="bold")
    return [head, made, *_more(len(lost) - LOSSES_SHOWN)]


def _failures(report: BenchReport) -> list[RenderableType]:
    """Tasks without a correct kernel, by why."""
    parts: list[RenderableType] = []
    for kind, lines in report.failures:
        parts.append(Text(f"\n{clean(kind)}: {len(lines)}", style="bold"))
        shown = [(_named(line), one_line(_reason(line), 2 * WHY)) for line in lines[:FAILURES_SHOWN]]
        parts += [pairs(shown), *_more(len(lines) - FAILURES_SHOWN)]
    return parts


def _reason(line: TaskLine) -> str:
    """Under a heading that names the gate already."""
    verdict = line.row.verdict
    if isinstance(verdict, Refused):
        return f"{verdict.reason}: {verdict.evidence}" if verdict.evidence else verdict.reason
    return line.why


def _more(left: int) -> list[RenderableType]:
    return [Text(f"and {left:,} more: see the report", style="dim")] if left > 0 else []


def _named(line: TaskLine) -> str:
    row = line.row
    return clean(row.key if row.key == row.name else f"{row.key} {row.name}")
