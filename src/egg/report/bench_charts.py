"""The pictures of a bench: how many tasks are faster than any factor, and where each family's tasks lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from egg.bench.rows import Basis, Row
from egg.bench.scores import Group, Speedups
from egg.bench.statistics import Estimate
from egg.report.bench_report import Outcome, TaskLine, baseline_name
from egg.report.canvas import CHARACTER, NARROW, WIDEST, Picture, Scale, drawn, figure, label, line, tip
from egg.report.elements import element, text
from egg.report.numbers import ends, opponent, times
from egg.report.quantities import percent

LEFT, RIGHT, TOP, FOOT = 44, 12, 12, 42
SHOWN = (0.25, 64.0)
"""Speedups beyond these stand on the edge of the picture."""
RADIUS = 3.6
WIDE_CHARACTER = 1.25 * CHARACTER
"""Room for a character of a name to which nothing may be cut off."""
TALLEST = 5
"""Dots above each other on either side of a row's middle; where more would be, they overlap."""
SPARK = (110, 14)
DOTS = (("faster", "faster beyond the noise"), ("even", "neither"), ("slower", "slower beyond the noise"))
"""Classes of dots, with what they mean."""


# -- fast_p ----------------------------------------------------------------------------------------


def fast_p_chart(rows: Sequence[Row], scores: Sequence[Speedups]) -> Markup:
    """One curve a baseline: of all tasks, the share with a correct kernel faster than p times it."""
    sentences = [
        f"{baseline_name(s)}: " + ", ".join(f"{percent(f.share.value or 0.0)} above {f.p:g}" for f in s.fast)
        for s in scores
    ]
    title = f"fast_p: share of {len(rows)} tasks that are correct and more than p times as fast"
    return drawn(
        "fast-p", title, "; ".join(sentences) + ".", lambda width: _fast_p(rows, scores, width), WIDEST
    )


def _fast_p(rows: Sequence[Row], scores: Sequence[Speedups], width: int) -> Picture:
    height = 300 if width > NARROW else 260
    bottom = height - FOOT
    found = [_speedups(rows, s.baseline, s.basis) for s in scores]
    across = _across([speed for speeds in found for speed in speeds], LEFT, width - RIGHT)
    rise = (bottom - TOP) / 100
    parts = []
    for share in (0, 20, 40, 60, 80, 100):
        y = bottom - share * rise
        parts += [line("ruler", LEFT, y, width - RIGHT, y), label(f"{share}%", LEFT - 6, y + 4, "end")]
    parts += _ticks(across, TOP, bottom, width)
    parts.append(label("p, times the baseline's speed", (LEFT + width - RIGHT) / 2, height - 4, "middle"))
    for i, (speeds, s) in enumerate(zip(found, scores, strict=True)):
        path = _stairs(speeds, len(rows), across, bottom, rise)
        parts.append(element("path", tip(baseline_name(s)), kind=f"curve c{i % 6}", d=path))
    return Picture(height, tuple(parts))


def _stairs(speeds: Sequence[float], total: int, across: Scale, bottom: float, rise: float) -> str:
    """Falls at each speedup, since a task counts only while it is strictly faster."""
    ordered = sorted(speeds)
    left = len([speed for speed in ordered if speed > across.low])
    path = f"M{across.start:.1f} {bottom - 100 * rise * left / total:.1f}"
    for i, speed in enumerate(ordered):
        if across.low < speed <= across.high:
            path += f"H{across.at(speed):.1f}V{bottom - 100 * rise * (len(ordered) - i - 1) / total:.1f}"
    return f"{path}H{across.end:.1f}"


def swatch(number: int) -> Markup:
    """A piece of a curve, for the key."""
    piece = line(f"curve c{number % 6}", 0, 5, 28, 5)
    return Markup(element("svg", piece, kind="spark", width=28, height=10, **{"aria-hidden": "true"}))


def drawn_dots(lines: Sequence[TaskLine], baseline: str) -> tuple[tuple[str, str], ...]:
    """Of :data:`DOTS`, those that the picture has."""
    found = {_kind(line, baseline) for line in lines if line.row.speedup(baseline) is not None}
    return tuple((kind, meaning) for kind, meaning in DOTS if kind in found)


def dot_sign(kind: str) -> Markup:
    """A dot of that class, or the mark of a mean, for the key."""
    if kind == "mean":
        parts = line("whisker", 0, 6, 20, 6) + line("mean", 10, 1, 10, 11)
    else:
        parts = element("circle", kind=f"sign {kind}", cx=10, cy=6, r=4)
    return Markup(element("svg", parts, kind="spark", width=20, height=12, **{"aria-hidden": "true"}))


# -- families --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Dot:
    x: float
    up: int
    """Rows above the middle, negative below."""
    line: TaskLine
    speed: float


def strip_chart(lines: Sequence[TaskLine], kind: str, groups: Sequence[Group], baseline: str) -> Markup:
    """A dot a task over the speedup, a row a group; the line through the dots is the geometric mean.

    ``kind`` is what a group is: a family, a level, or the whole bench."""
    sentences = []
    for group in groups:
        found = group.against(baseline)
        if found is not None and found.geomean is not None:
            sentences.append(
                f"{group.name}: {found.timed} timed, geometric mean {times(found.geomean.value)}"
            )
    return drawn(
        "strip",
        f"Speedups over {opponent(baseline)} by {kind}, one dot a task",
        "; ".join(sentences) + ".",
        lambda width: _strip(lines, kind, groups, baseline, width),
        WIDEST,
    )


def _of(row: Row, kind: str, groups: Sequence[Group]) -> str:
    """The name of the group that a row is in."""
    if kind == "family":
        return row.family.value
    return f"level {row.level}" if kind == "level" else groups[0].name


def _strip(
    lines: Sequence[TaskLine], kind: str, groups: Sequence[Group], baseline: str, width: int
) -> Picture:
    wide = width > NARROW
    left = max(len(group.name) for group in groups) * WIDE_CHARACTER + 12 if wide else 4
    timed = [(found.median, line) for line in lines if (found := line.row.speedup(baseline)) is not None]
    across = _across([speed for speed, _ in timed], left, width - RIGHT)
    parts, top = [], 8.0 if wide else 4.0
    for group in groups:
        dots = _swarm([(s, line) for s, line in timed if _of(line.row, kind, groups) == group.name], across)
        reach = max((abs(dot.up) for dot in dots), default=0)
        above = 0.0 if wide else 16.0
        middle = top + above + 8 + reach * RADIUS * 1.9
        parts += _family(group, baseline, dots, across, middle, left if wide else 0.0, top)
        top = middle + 8 + reach * RADIUS * 1.9
        parts.append(line("ruler", 0 if wide else left, top, width - RIGHT, top))
        top += 3
    frame = _ticks(across, 4, top, width)
    named = label("speedup", (left + width - RIGHT) / 2, top + 34, "middle")
    return Picture(top + FOOT, (*frame, *parts, named))


def _family(
    group: Group, baseline: str, dots: Sequence[_Dot], across: Scale, middle: float, left: float, top: float
) -> list[str]:
    """One row: its name, its dots, and the mean with its interval."""
    name = (
        label(group.name, left - 8, middle + 4, "end", "name")
        if left
        else label(f"{group.name}, {group.tasks}", 4, top + 12, "start", "name")
    )
    parts = [name, *(_dot(dot, middle, baseline) for dot in dots)]
    found = group.against(baseline)
    if found is not None and found.geomean is not None:
        mean = found.geomean
        x = across.at(mean.value)
        hover = tip(f"{group.name}: geometric mean {times(mean.value)} {ends(mean)}, {found.timed} timed")
        if mean.low is not None and mean.high is not None:
            parts.append(line("whisker", across.at(mean.low), middle, across.at(mean.high), middle))
        parts.append(element("line", hover, kind="mean", x1=x, y1=middle - 8, x2=x, y2=middle + 8))
    return parts


def _dot(dot: _Dot, middle: float, baseline: str) -> str:
    kind = _kind(dot.line, baseline)
    hover = element("title", text(f"{dot.line.row.key} {dot.line.row.name}: {times(dot.speed)}"))
    y = middle - dot.up * RADIUS * 1.9
    return element("circle", hover, kind=f"dot {kind}", cx=dot.x, cy=y, r=RADIUS)


def _kind(task: TaskLine, baseline: str) -> str:
    return {Outcome.FASTER: "faster", Outcome.SLOWER: "slower"}.get(task.against(baseline), "even")


def _swarm(found: Sequence[tuple[float, TaskLine]], across: Scale) -> list[_Dot]:
    """Each dot beside the line where the ones before left room, as near to the middle as it goes."""
    rows = [0, *(side * step for step in range(1, TALLEST + 1) for side in (1, -1))]
    ends_at = dict.fromkeys(rows, -1e9)
    dots = []
    for speed, task in sorted(found, key=lambda pair: pair[0]):
        x = across.at(speed)
        free = [row for row in rows if x - ends_at[row] >= 2 * RADIUS]
        row = free[0] if free else min(rows, key=lambda row: ends_at[row])
        ends_at[row] = x
        dots.append(_Dot(x, row, task, speed))
    return dots


# -- both ------------------------------------------------------------------------------------------


def _speedups(rows: Sequence[Row], baseline: str, basis: Basis) -> list[float]:
    return [found.median for row in rows if (found := row.speedup(baseline, basis)) is not None]


def _across(speeds: Sequence[float], start: float, end: float) -> Scale:
    low, high = SHOWN
    return Scale.around([1.0, *(min(max(speed, low), high) for speed in speeds)], start, end, least=4.0)


def _ticks(across: Scale, top: float, bottom: float, width: int) -> list[str]:
    parts = []
    for value in across.ticks(9 if width > NARROW else 6):
        x = across.at(value)
        parts.append(line("one" if value == 1 else "ruler", x, top, x, bottom))
        parts.append(label(f"{figure(value)}×", x, bottom + 16, "middle"))
    return parts


def interval_mark(found: Estimate | None, groups: Sequence[Group], baseline: str) -> Markup:
    """A mean with its interval on the scale of all ``groups``, small enough for a table's cell."""
    if found is None:
        return Markup("")
    estimates = [s.geomean for group in groups if (s := group.against(baseline)) is not None]
    seen = [end for e in estimates if e is not None for end in (e.value, e.low, e.high) if end is not None]
    across = Scale.around([1.0, *seen], 4, SPARK[0] - 4)
    one, middle, x = across.at(1.0), SPARK[1] / 2, across.at(found.value)
    parts = [line("ruler", one, 0, one, SPARK[1])]
    if found.low is not None and found.high is not None:
        parts.append(line("whisker", across.at(found.low), middle, across.at(found.high), middle))
    parts.append(element("circle", kind="mark", cx=x, cy=middle, r=3.2))
    size = {"width": SPARK[0], "height": SPARK[1], "viewBox": f"0 0 {SPARK[0]} {SPARK[1]}"}
    return Markup(element("svg", "".join(parts), kind="spark", **size, **{"aria-hidden": "true"}))
