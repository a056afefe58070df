"""A run as a page, as Markdown, and as a table of its steps."""

from __future__ import annotations

from markupsafe import Markup

from egg import __version__
from egg.report.page import Live, page, plain
from egg.report.roofline_svg import inline, notes
from egg.report.run_charts import steps_chart, steps_key, times_chart
from egg.report.run_report import RunReport
from egg.report.run_story import StepStory
from egg.report.tables import Cell, csv_text

COLUMNS = (
    "run",
    "task",
    "step",
    "stage",
    "category",
    "change",
    "predicted",
    "gain",
    "gain_measured",
    "milliseconds",
    "speedup_over_eager",
    "speedup_low",
    "speedup_high",
    "decision",
    "reason",
    "files",
    "refused",
    "kernel",
)


def run_html(report: RunReport, live: Live | None = None) -> str:
    contestants, marks = report.contestants, report.marks
    return page(
        "run.html",
        report=report,
        version=__version__,
        live=live,
        times_chart=times_chart(contestants, report.measured is None) if contestants else None,
        steps_chart=steps_chart(marks, report.levels, report.speed_unit)
        if any(mark.speed is not None for mark in marks)
        else None,
        steps_key=steps_key(marks),
        roofline=Markup(inline(report.roofline)) if report.roofline is not None else None,
        roofline_notes="; ".join(notes(report.roofline)) if report.roofline is not None else "",
    )


def run_markdown(report: RunReport) -> str:
    return plain("run.md", report=report, version=__version__)


def run_csv(report: RunReport) -> str:
    """One row a step."""
    return csv_text(COLUMNS, [_row(report, entry) for entry in report.story.steps])


def _row(report: RunReport, entry: StepStory) -> list[Cell]:
    step, score = entry.step, entry.score
    speedup = score.speedup if score is not None else None
    return [
        report.state.started.run,
        report.task,
        step.number,
        step.stage.value,
        step.plan.category.value if step.plan is not None else None,
        step.plan.change if step.plan is not None else None,
        step.plan.prediction.speedup if step.plan is not None else None,
        step.gain.ratio if step.gain is not None else None,
        step.gain.measured if step.gain is not None else None,
        score.milliseconds.median if score is not None else None,
        speedup.median if speedup is not None else None,
        speedup.low if speedup is not None else None,
        speedup.high if speedup is not None else None,
        step.decision.value,
        step.reason,
        len(step.attempts),
        sum(attempt.failed for attempt in step.attempts),
        step.candidate,
    ]
