"""The roofline as one SVG file: no scripts, no fonts or images from elsewhere, light and dark by itself.

A page holds it twice, at the width of a computer and of a phone, and shows the one that fits.

Labels never lie on each other: each takes the free place nearest to its point (see ``placing``),
and a thin line leads to it where that is not beside the point. Large circles are kernels that
take much of the time; a pale, dashed one was predicted and not measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from egg.report.elements import element, text, words
from egg.report.placing import CROSSING, Box, Field, steps
from egg.report.quantities import milliseconds, per_byte, percent, quantity
from egg.report.roofline import Axes, Point, Roofline, axes_of, height_of, ticks
from egg.report.roofline_text import reached, short

MOST_LABELS = 8
"""The longest kernels are named; the others have a circle and a tooltip."""
MOST_CIRCLES = 40
SMALLEST, LARGEST = 4.0, 16.0
"""Radii; a circle's area follows the share of time."""
LINE = 14.0
CHARACTER = 6.6
"""Width of one at the labels' size, on the safe side."""
DOT = " \N{MIDDLE DOT} "

STYLE = """
.roofline text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:#1f2328}
.roofline .page{fill:#ffffff}.roofline .title{font-size:15px;font-weight:600}.roofline .quiet{fill:#59636e}
.roofline .grid{stroke:#d8dee4;stroke-width:1}.roofline .frame{fill:none;stroke:#59636e;stroke-width:1}
.roofline .memory{fill:none;stroke:#0969da;stroke-width:2}
.roofline .unit{fill:none;stroke:#8250df;stroke-width:2}.roofline .memory-name{fill:#0969da}
.roofline .unit-name{fill:#8250df}.roofline .lead{stroke:#59636e;stroke-width:.8}
.roofline .kernel{fill:#bc4c00;fill-opacity:.75;stroke:#bc4c00;stroke-width:1.5}
.roofline .predicted{fill-opacity:.15;stroke-dasharray:3 2}.roofline .ideal{fill:#1a7f37}
.roofline .plumb{stroke:#1a7f37;stroke-width:1;stroke-dasharray:2 4}.roofline .ideal-name{fill:#1a7f37}
@media(prefers-color-scheme:dark){
.roofline text{fill:#e6edf3}.roofline .page{fill:#0d1117}.roofline .quiet{fill:#9198a1}
.roofline .grid{stroke:#262c36}.roofline .frame{stroke:#9198a1}.roofline .memory{stroke:#58a6ff}
.roofline .unit{stroke:#bc8cff}.roofline .memory-name{fill:#58a6ff}.roofline .unit-name{fill:#bc8cff}
.roofline .lead{stroke:#9198a1}.roofline .kernel{fill:#f0883e;stroke:#f0883e}.roofline .ideal{fill:#3fb950}
.roofline .plumb{stroke:#3fb950}.roofline .ideal-name{fill:#3fb950}}
"""


@dataclass(frozen=True)
class Frame:
    """The size of a picture, the edges of the plot in it, and how much is written there."""

    name: str
    width: int
    height: int
    left: float
    top: float
    right: float
    bottom: float
    labels: int = MOST_LABELS
    """Kernels that are named."""
    brief: bool = False
    """Whether numbers go without the words that a wide picture has room for."""

    @property
    def middle(self) -> float:
        return (self.left + self.right) / 2


FILE = Frame("", 760, 500, 92, 76, 736, 438)
"""The file, with a heading above the plot."""
PAGE = (
    Frame("wide", 720, 420, 92, 8, 712, 376),
    Frame("narrow", 350, 380, 50, 24, 346, 332, labels=3, brief=True),
)
"""In a page, which has headings of its own."""


def svg(chart: Roofline) -> str:
    """The whole file as text."""
    head = [element("style", STYLE), element("rect", kind="page", width=FILE.width, height=FILE.height)]
    return _drawn(chart, FILE, [*head, *_heading(chart)])


def inline(chart: Roofline) -> str:
    """The picture at both widths, for a page that holds :data:`STYLE` itself."""
    return "".join(_drawn(chart, frame) for frame in PAGE)


def _drawn(chart: Roofline, frame: Frame, head: Sequence[str] = ()) -> str:
    sheet = _Sheet(axes_of(chart), frame)
    circles = [_circle(sheet, point) for point in chart.points[:MOST_CIRCLES]]
    sheet.field.take(*_line_boxes(sheet, chart))
    sheet.field.take(*(Box.around(c.x, c.y, c.r, c.r) for c in circles), solid=True)
    name = f"roofline-{frame.name}" if frame.name else "roofline"
    inside = [
        element("title", text(_title(chart)), id=f"{name}-title"),
        element("desc", text(describe(chart)), id=f"{name}-desc"),
        *head,
        *_grid(sheet),
        *_roof_lines(sheet, chart),
        *_roof_names(sheet, chart),
        _memory_name(sheet, chart),
        *_ideal(sheet, chart),
        *(circle.svg() for circle in reversed(circles)),
        *_labels(sheet, circles[: frame.labels]),
    ]
    size = {"viewBox": f"0 0 {frame.width} {frame.height}", "width": frame.width, "height": frame.height}
    kind = f"roofline {frame.name}".strip()
    attributes = {"role": "img", "class": kind, "aria-labelledby": f"{name}-title {name}-desc"}
    body = "\n".join(["", *inside, ""])
    return element("svg", body, xmlns="http://www.w3.org/2000/svg", **size, **attributes) + "\n"


def describe(chart: Roofline) -> str:
    """The picture in words, for screen readers."""
    roofs = ", ".join(f"{roof.name} {quantity(roof.rate, 'FLOP/s')}" for roof in chart.roofs)
    sentences = [f"Memory {quantity(chart.bandwidth, 'B/s')}; {roofs}."]
    sentences += [
        f"{short(point.name)}: {_time(point)}, {percent(point.share)} of the time, "
        f"{per_byte(point.intensity)}, {reached(point)}."
        for point in chart.points[:MOST_LABELS]
    ]
    if chart.ideal is not None:
        sentences.append(f"The task with everything fused: {per_byte(chart.ideal)}.")
    return " ".join(sentences)


class _Sheet:
    """Where things are on the page, and which places are free for labels."""

    def __init__(self, axes: Axes, frame: Frame) -> None:
        self.axes = axes
        self.frame = frame
        self.field = Field(Box(frame.left + 4, frame.top + 4, frame.right - 4, frame.bottom - 4))

    def x(self, intensity: float) -> float:
        return self.frame.left + self.axes.across(intensity) * (self.frame.right - self.frame.left)

    def y(self, rate: float) -> float:
        return self.at(self.axes.up(rate))

    def at(self, up: float) -> float:
        return self.frame.bottom - up * (self.frame.bottom - self.frame.top)


# -- the frame -------------------------------------------------------------------------------------


def _heading(chart: Roofline) -> list[str]:
    return [
        words(_title(chart), FILE.left, 30, kind="title"),
        words(DOT.join(notes(chart)), FILE.left, 50, kind="quiet"),
    ]


def _title(chart: Roofline) -> str:
    return f"{short(chart.program, 40)} on {chart.gpu}" if chart.program else f"roofline of {chart.gpu}"


def notes(chart: Roofline) -> list[str]:
    """What a reader of the picture has to know."""
    if not chart.points:
        return ["the task alone, no kernel"]
    times = "times measured" if chart.measured else "times predicted, not measured"
    if chart.whole:
        return ["all kernels together", times]
    found = [f"{len(chart.points)} kernel{'s' if len(chart.points) != 1 else ''}", times]
    found += [f"the {MOST_LABELS} longest are named"] if len(chart.points) > MOST_LABELS else []
    found += [f"{len(chart.undrawn)} more not drawn: their work is not known"] if chart.undrawn else []
    return [*found, "area: share of the time"]


def _grid(sheet: _Sheet) -> list[str]:
    frame, lines = sheet.frame, []
    for power in ticks(sheet.axes.left, sheet.axes.right, 6 if frame.brief else 12):
        x = sheet.x(10.0**power)
        lines.append(element("line", kind="grid", x1=x, y1=frame.top, x2=x, y2=frame.bottom))
        lines.append(words(f"{10.0**power:,.10g}", x, frame.bottom + 18, "middle", "quiet"))
    for power in ticks(sheet.axes.bottom, sheet.axes.top, 12):
        y = sheet.y(10.0**power)
        lines.append(element("line", kind="grid", x1=frame.left, y1=y, x2=frame.right, y2=y))
        name = quantity(10.0**power, "" if frame.brief else "FLOP/s")
        lines.append(words(name, frame.left - 8, y + 4, "end", "quiet"))
    if frame.brief:
        lines.append(words("FLOP/s", 0, frame.top - 10, kind="quiet"))
    width, height = frame.right - frame.left, frame.bottom - frame.top
    lines.append(element("rect", kind="frame", x=frame.left, y=frame.top, width=width, height=height))
    across = "FLOP per byte of memory traffic"
    lines.append(words(across, frame.middle, frame.bottom + 40, "middle", "quiet"))
    return lines


# -- the roofs and the task's mark -----------------------------------------------------------------


def _roof_lines(sheet: _Sheet, chart: Roofline) -> list[str]:
    start = max(10**sheet.axes.left, 10**sheet.axes.bottom / chart.bandwidth)
    flat = [(sheet.x(roof.rate / chart.bandwidth), sheet.y(roof.rate)) for roof in chart.roofs]
    lines = [element("path", kind="unit", d=f"M{x:.1f} {y:.1f}H{sheet.frame.right}") for x, y in flat]
    corner = f"{flat[-1][0]:.1f} {flat[-1][1]:.1f}"
    slope = f"M{sheet.x(start):.1f} {sheet.y(start * chart.bandwidth):.1f}L{corner}"
    return [*lines, element("path", kind="memory", d=slope)]


def _roof_names(sheet: _Sheet, chart: Roofline) -> list[str]:
    """At the right end, from the top down: above the line, below it, or below the name before."""
    names, before, right = [], -math.inf, sheet.frame.right - 6
    for roof in reversed(chart.roofs):
        name, y = f"{roof.name} {quantity(roof.rate, 'FLOP/s')}", sheet.y(roof.rate)
        lowest = before + LINE
        base = next((place for place in (y - 5, y + LINE - 1) if place >= lowest), lowest)
        sheet.field.take(Box(right - len(name) * CHARACTER, base - LINE + 2, right, base + 4))
        names.append(words(name, right, base, "end", "unit-name"))
        before = base
    return names


def _memory_name(sheet: _Sheet, chart: Roofline) -> str:
    """Along the slope, above it, in its upper half."""
    corner = chart.roofs[-1].rate / chart.bandwidth
    right = math.log10(corner)
    middle = 10 ** (right - 0.3 * (right - sheet.axes.left))
    x, y = sheet.x(middle), sheet.y(middle * chart.bandwidth)
    angle = math.atan2(sheet.y(corner * chart.bandwidth) - y, sheet.x(corner) - x)
    name = f"memory {quantity(chart.bandwidth, 'B/s')}"
    half = len(name) * CHARACTER / 2
    for along in (-half, -half / 2, 0.0, half / 2, half):
        sheet.field.take(Box.around(x + along * math.cos(angle), y + along * math.sin(angle) - 9, 16, 11))
    turned = f"rotate({math.degrees(angle):.1f} {x:.1f} {y:.1f})"
    return words(name, x, y - 6, "middle", "memory-name", transform=turned)


def _ideal(sheet: _Sheet, chart: Roofline) -> list[str]:
    """A diamond on the roof where the whole task would stand, a plumb line, and its name at the foot."""
    if chart.ideal is None or chart.ideal_rate is None:
        return []
    x, y, bottom = sheet.x(chart.ideal), sheet.y(chart.ideal_rate), sheet.frame.bottom
    name = "task, everything fused"
    box, _ = sheet.field.nearest(x + 8, bottom - LINE, len(name) * CHARACTER, LINE + 2)
    at, anchor = _towards(x, box)
    tip = element("title", text(f"the task with everything fused: {per_byte(chart.ideal)}"))
    return [
        element("line", kind="plumb", x1=x, y1=y, x2=x, y2=bottom),
        element("path", tip, kind="ideal", d=f"M{x:.1f} {y - 7:.1f}l7 7l-7 7l-7 -7z"),
        words(name, at, box.top + LINE - 1, anchor, "ideal-name"),
    ]


def _line_boxes(sheet: _Sheet, chart: Roofline) -> list[Box]:
    """The roofs, the mark and its plumb line, for labels to keep off: a slope is a row of small boxes."""
    boxes = []
    for roof in chart.roofs:
        y = sheet.y(roof.rate)
        boxes.append(Box(sheet.x(roof.rate / chart.bandwidth), y - 2, sheet.frame.right, y + 2))
    foot, top = sheet.axes.left, math.log10(chart.roofs[-1].rate / chart.bandwidth)
    for power in steps(foot, top, (top - foot) / 50):
        boxes.append(Box.around(sheet.x(10**power), sheet.y(10**power * chart.bandwidth), 6, 4))
    if chart.ideal is not None and chart.ideal_rate is not None:
        x, y = sheet.x(chart.ideal), sheet.y(chart.ideal_rate)
        boxes += [Box.around(x, y, 8, 8), Box(x - 2, y, x + 2, sheet.frame.bottom)]
    return boxes


# -- the kernels -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Circle:
    point: Point
    x: float
    y: float
    r: float

    def svg(self) -> str:
        point = self.point
        tip = f"{point.name}: {_time(point)}, {quantity(point.rate, 'FLOP/s')}, {reached(point)}"
        kind = "kernel" if point.measured else "kernel predicted"
        title = element("title", text(short(tip, 160)))
        return element("circle", title, kind=kind, cx=self.x, cy=self.y, r=self.r)


def _circle(sheet: _Sheet, point: Point) -> _Circle:
    radius = max(SMALLEST, LARGEST * math.sqrt(max(0.0, point.share)))
    return _Circle(point, sheet.x(point.intensity), sheet.at(height_of(point, sheet.axes)), radius)


def _labels(sheet: _Sheet, circles: Sequence[_Circle]) -> list[str]:
    """Every circle's label, placed one after another; in another order where the first makes lines cross."""
    orders = (
        sorted(circles, key=lambda circle: -circle.y),
        sorted(circles, key=lambda circle: circle.y),
        sorted(circles, key=lambda circle: circle.x),
    )
    best = _placed(sheet, circles)
    for order in orders:
        if best[1] < CROSSING:
            break
        best = min(best, _placed(sheet, order), key=lambda placed: placed[1])
    return [line for circle, box in best[0] for line in _label(circle, box, sheet.frame.brief)]


def _placed(sheet: _Sheet, circles: Iterable[_Circle]) -> tuple[list[tuple[_Circle, Box]], float]:
    field, boxes, total = sheet.field.copy(), [], 0.0
    for circle in circles:
        width = max(map(len, _caption(circle.point, sheet.frame.brief))) * CHARACTER + 4
        box, bad = field.nearest(circle.x, circle.y, width, 2 * LINE + 2)
        boxes.append((circle, box))
        total += bad
    return boxes, total


def _caption(point: Point, brief: bool) -> tuple[str, str]:
    """The two lines of a label; whether times are predicted, a brief one leaves to the words below."""
    time = milliseconds(point.milliseconds) if brief else _time(point)
    return short(point.name, 20 if brief else 30), f"{time}{DOT}{reached(point)}"


def _label(circle: _Circle, box: Box, brief: bool) -> list[str]:
    name, facts = _caption(circle.point, brief)
    x, anchor = _towards(circle.x, box)
    y = box.top + LINE - 2
    return [
        *_lead(circle, box),
        words(name, x, y, anchor, weight=600),
        words(facts, x, y + LINE, anchor, "quiet"),
    ]


def _towards(x: float, box: Box) -> tuple[float, str]:
    """Where the text of a label begins, so that it is flush with the side that its point is on."""
    if box.right <= x:
        return box.right - 3, "end"
    return (box.left + 3, "start") if box.left >= x else ((box.left + box.right) / 2, "middle")


def _lead(circle: _Circle, box: Box) -> list[str]:
    """From the circle's edge to the label's; none where they are neighbours."""
    x, y = box.nearest_to(circle.x, circle.y)
    far = math.hypot(x - circle.x, y - circle.y)
    if far < circle.r + 6:
        return []
    dx, dy = (x - circle.x) / far * circle.r, (y - circle.y) / far * circle.r
    return [element("line", kind="lead", x1=circle.x + dx, y1=circle.y + dy, x2=x, y2=y)]


def _time(point: Point) -> str:
    return milliseconds(point.milliseconds) + ("" if point.measured else " predicted")
