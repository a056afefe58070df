"""A bench as a page, as Markdown, and as a table of its tasks."""

from __future__ import annotations

from egg import __version__
from egg.bench.statistics import Estimate
from egg.report.bench_charts import dot_sign, drawn_dots, fast_p_chart, interval_mark, strip_chart, swatch
from egg.report.bench_report import BenchReport, TaskLine, baseline_name
from egg.report.numbers import NONE, ends, times
from egg.report.page import Live, page, plain
from egg.report.tables import Cell, csv_text

COLUMNS = (
    "task",
    "name",
    "level",
    "problem",
    "family",
    "outcome",
    "verdict",
    "gate",
    "why",
    "degenerate",
    "gpu",
    "precision",
    "library_calls",
    "milliseconds",
    "noise_floor",
    "floor_milliseconds",
    "predicted_milliseconds",
    "limiter",
    "kernelbench",
    "kernelbench_static",
    "tokens",
    "money",
    "gpu_seconds",
    "wall_seconds",
    "task_hash",
    "kernel_hash",
    "run",
)


def bench_html(report: BenchReport, live: Live | None = None) -> str:
    kind, groups = report.drawn_groups
    return page(
        "bench.html",
        report=report,
        version=__version__,
        live=live,
        fast_p=fast_p_chart(report.rows, report.timed) if report.timed else None,
        strip=strip_chart(report.lines, kind, groups, report.strictest) if report.compared else None,
        strip_of=kind,
        dots=drawn_dots(report.lines, report.strictest),
        filters={
            "baseline": baseline_name,
            "swatch": swatch,
            "interval": interval_mark,
            "dot_sign": dot_sign,
        },
    )


def bench_markdown(report: BenchReport) -> str:
    filters = {"baseline": baseline_name, "estimate": _estimate}
    return plain("bench.md", report=report, version=__version__, filters=filters)


def _estimate(found: Estimate | None) -> str:
    if found is None:
        return NONE
    return f"{times(found.value)} ({ends(found)})" if found.low is not None else times(found.value)


def bench_csv(report: BenchReport) -> str:
    """One row a task; every opponent has its columns."""
    opponents = dict.fromkeys(
        (opponent.name, opponent.basis)
        for row in report.rows
        if row.timing is not None
        for opponent in row.timing.opponents
    )
    columns = [*COLUMNS]
    for name, basis in opponents:
        stem = f"{name}_{basis.value}".replace("-", "_")
        columns += [f"{stem}_{what}" for what in ("milliseconds", "speedup", "speedup_low", "speedup_high")]
    return csv_text(columns, [[*_row(line), *_opponents(line, opponents)] for line in report.lines])


def _row(line: TaskLine) -> list[Cell]:
    row, passed, timing, spent = line.row, line.passed, line.row.timing, line.row.spent
    return [
        row.key,
        row.name,
        row.level,
        row.problem,
        row.family.value,
        line.outcome.value,
        row.verdict.kind,
        getattr(getattr(row.verdict, "gate", None), "value", None),
        line.why,
        row.degenerate,
        timing.gpu if timing is not None else None,
        row.policy.precision.value,
        row.policy.library_calls.value,
        line.milliseconds,
        timing.noise_floor if timing is not None else None,
        passed.floor_milliseconds if passed is not None else None,
        passed.predicted_milliseconds if passed is not None else None,
        passed.limiter if passed is not None else None,
        row.kernelbench,
        row.kernelbench_static,
        spent.tokens,
        spent.money,
        spent.gpu_seconds,
        spent.wall_seconds,
        row.task,
        row.kernel,
        row.run,
    ]


def _opponents(line: TaskLine, wanted: dict) -> list[Cell]:
    timing = line.row.timing
    known = {(o.name, o.basis): o for o in timing.opponents} if timing is not None else {}
    cells: list[Cell] = []
    for key in wanted:
        found = known.get(key)
        speedup = found.speedup if found is not None else None
        cells += [
            found.milliseconds.median if found is not None else None,
            speedup.median if speedup is not None else None,
            speedup.low if speedup is not None else None,
            speedup.high if speedup is not None else None,
        ]
    return cells
