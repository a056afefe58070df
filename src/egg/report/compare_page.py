"""A comparison of two benches as a page and as Markdown, with the picture of all ratios."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from egg import __version__
from egg.bench.compare import Outcome, TaskComparison
from egg.core.evaluation import Interval
from egg.report.bench_charts import dot_sign
from egg.report.canvas import NARROW, WIDEST, Picture, Scale, drawn, figure, label, line, tip
from egg.report.compare_report import MEANINGS, CompareReport
from egg.report.elements import element
from egg.report.numbers import NONE, ends, times
from egg.report.page import page, plain

BADGES = {Outcome.FASTER: "good", Outcome.GAINED: "good", Outcome.SLOWER: "bad", Outcome.LOST: "bad"}
LEFT, RIGHT, TOP, FOOT = 48, 12, 12, 26
DOTS = (("faster", "B is faster"), ("even", "no significant difference"), ("slower", "B is slower"))
"""Classes of dots, with what they mean."""
SHOWN = (1 / 16, 16.0)
"""Ratios beyond these stand on the edge of the picture."""


def compare_html(report: CompareReport) -> str:
    chart = ratio_chart(report.timed) if report.timed else None
    filters = {
        "badge": lambda outcome: BADGES.get(outcome, ""),
        "meaning": MEANINGS.__getitem__,
        "dot_sign": dot_sign,
    }
    found = {_kind(task) for task in report.timed}
    dots = [(kind, meaning) for kind, meaning in DOTS if kind in found]
    return page("compare.html", report=report, version=__version__, chart=chart, dots=dots, filters=filters)


def compare_markdown(report: CompareReport) -> str:
    filters = {"interval": _interval, "meaning": MEANINGS.__getitem__}
    return plain("compare.md", report=report, version=__version__, filters=filters)


def _interval(found: Interval | None) -> str:
    return f"{times(found.median)} ({ends(found)})" if found is not None else NONE


def ratio_chart(tasks: Sequence[TaskComparison]) -> Markup:
    """A dot a task, from B's worst to B's best, at B's speed over A's, with its interval."""
    extremes = "; ".join(f"{task.key} {times(_ratio(task).median)}" for task in (tasks[0], tasks[-1]))
    return drawn(
        "ratios",
        f"B's speed over A's for {len(tasks)} tasks, in ascending order",
        f"From {extremes}.",
        lambda width: _ratios(tasks, width),
        WIDEST,
    )


def _ratios(tasks: Sequence[TaskComparison], width: int) -> Picture:
    height = 300 if width > NARROW else 260
    bottom = height - FOOT
    low, high = SHOWN
    seen = [min(max(end, low), high) for t in tasks for end in (_ratio(t).low, _ratio(t).high)]
    up = Scale.around([1.0, *seen], bottom, TOP, least=1.2)
    parts = []
    for value in up.ticks(7):
        y = up.at(value)
        parts.append(line("one" if value == 1 else "ruler", LEFT, y, width - RIGHT, y))
        parts.append(label(f"{figure(value)}×", LEFT - 6, y + 4, "end"))
    step = (width - RIGHT - LEFT) / len(tasks)
    radius = min(3.6, max(1.2, step / 2.2))
    for place, task in enumerate(tasks):
        parts += _task(task, LEFT + (place + 0.5) * step, radius, up)
    parts.append(label("tasks, B's worst first", (LEFT + width - RIGHT) / 2, height - 6, "middle"))
    return Picture(height, tuple(parts))


def _task(task: TaskComparison, x: float, radius: float, up: Scale) -> list[str]:
    found = _ratio(task)
    hover = tip(f"{task.key} {task.name}: {times(found.median)} {ends(found)}, {task.outcome.value}")
    return [
        line("level", x, up.at(found.low), x, up.at(found.high)),
        element("circle", hover, kind=f"dot {_kind(task)}", cx=x, cy=up.at(found.median), r=radius),
    ]


def _kind(task: TaskComparison) -> str:
    return {Outcome.FASTER: "faster", Outcome.SLOWER: "slower"}.get(task.outcome, "even")


def _ratio(task: TaskComparison) -> Interval:
    assert task.ratio is not None
    return task.ratio
