"""The roofline in a terminal: plain text, readable without colour, 80 columns or what there is.

Roofs are drawn with dots of a quarter line's height (braille), or with ``. - '`` where only ASCII
goes out. Kernels are capital letters, the task's own mark is a diamond; a letter that would
cover another one moves to the next free column.
"""

from __future__ import annotations

from dataclasses import dataclass

from egg.report.quantities import factor, per_byte, percent, quantity
from egg.report.roofline import Axes, Point, Roofline, axes_of, height_of, ticks

GUTTER = 13
"""Columns left of the plot: ``100 GFLOP/s ┤``."""
NARROWEST = 48
NAME = 34
"""Characters of a kernel's name in the key."""


@dataclass(frozen=True)
class Marks:
    """What the plot is drawn with."""

    ideal: str
    plumb: str
    tick: str
    wall: str
    floor: str
    corner: str
    foot: str
    dots: tuple[str, ...] = ()
    """For a point in the lowest to the highest quarter of a line; braille where there are none."""


UNICODE = Marks("◆", "┊", "┤", "│", "─", "└", "┬")
ASCII = Marks("#", ":", "+", "|", "-", "+", "+", (".", "-", "-", "'"))
_BRAILLE = ((0x40, 0x80), (0x04, 0x20), (0x02, 0x10), (0x01, 0x08))
"""Dots of a braille cell by quarter of the line (lowest first) and half of the column."""


def plot(chart: Roofline, width: int = 80, height: int = 16, marks: Marks = UNICODE) -> str:
    """The whole picture with its axes; the key is :func:`key`."""
    axes = axes_of(chart)
    canvas = _Canvas(max(NARROWEST, width) - GUTTER - 1, max(6, height), marks)
    _draw_roofs(canvas, chart, axes)
    if chart.ideal is not None and chart.ideal_rate is not None:
        column, row = canvas.cell(axes.across(chart.ideal), axes.up(chart.ideal_rate))
        for below in range(row + 1, canvas.height):
            canvas.write(column, below, marks.plumb)
        canvas.write(column, row, marks.ideal, keep=True)
    for point in (point for point in chart.points if point.letter):
        canvas.place(point.letter, *canvas.cell(axes.across(point.intensity), height_of(point, axes)))
    _label_roofs(canvas, chart, axes)
    return "\n".join(_framed(canvas, axes, marks))


def key(chart: Roofline, marks: Marks = UNICODE) -> list[str]:
    """A line for each letter of the plot, and for what is not in it."""
    lines = [_key_line(point) for point in chart.points if point.letter]
    unnamed = len(chart.points) - len(lines)
    lines += [f"  and {unnamed} shorter kernels without a letter"] if unnamed else []
    if chart.ideal is not None and chart.ideal_rate is not None:
        lines.append(
            f"{marks.ideal} the task with everything fused: {per_byte(chart.ideal)}, "
            f"at most {quantity(chart.ideal_rate, 'FLOP/s')}"
        )
    if chart.undrawn:
        lines.append(f"  not drawn, as their work is not known: {_named(chart.undrawn)}")
    return lines


def short(name: str, longest: int = NAME) -> str:
    """The beginning and the end of a long name, which tell more than the middle."""
    if len(name) <= longest:
        return name
    tail = longest // 3
    return f"{name[: longest - tail - 3]}...{name[-tail:]}"


def _named(kernels: tuple[str, ...], most: int = 4) -> str:
    more = [f"and {len(kernels) - most} more"] if len(kernels) > most else []
    return ", ".join([*map(short, kernels[:most]), *more])


def _key_line(point: Point) -> str:
    if point.rate:
        does = f"{per_byte(point.intensity)}, {quantity(point.rate, 'FLOP/s')}"
    else:
        does = "no arithmetic (left edge)"
    label = "" if point.measured else ", predicted"
    moves = quantity(point.bandwidth, "B/s")
    return f"{point.letter} {short(point.name)}: {does}, {moves}, {reached(point)}{label}"


def reached(point: Point) -> str:
    """How near to its roof. Beyond it is possible: caches held what counts as traffic, or less was done."""
    return f"{percent(point.of_roof) if point.of_roof <= 1 else factor(point.of_roof)} of its roof"


class _Canvas:
    """Cells of text, row 0 on top. What is kept is not written over."""

    def __init__(self, width: int, height: int, marks: Marks) -> None:
        self.width, self.height, self._marks = width, height, marks
        self._cells = [[" "] * width for _ in range(height)]
        self._kept: set[tuple[int, int]] = set()

    def cell(self, across: float, up: float) -> tuple[int, int]:
        column = min(self.width - 1, int(across * self.width))
        return column, self.height - 1 - min(self.height - 1, int(up * self.height))

    def dot(self, across: float, up: float) -> None:
        column, row = self.cell(across, up)
        quarter = min(3, int((up * self.height) % 1 * 4)) if up < 1 else 3
        if self._marks.dots:
            self.write(column, row, self._marks.dots[quarter])
            return
        half = min(1, int((across * self.width) % 1 * 2)) if across < 1 else 1
        seen = ord(self._cells[row][column])
        drawn = seen if 0x2800 <= seen <= 0x28FF else 0x2800
        self.write(column, row, chr(drawn | _BRAILLE[quarter][half]))

    def write(self, column: int, row: int, text: str, *, keep: bool = False) -> None:
        for offset, character in enumerate(text):
            place = (column + offset, row)
            if place not in self._kept and 0 <= place[0] < self.width:
                self._cells[row][place[0]] = character
                if keep:
                    self._kept.add(place)

    def place(self, letter: str, column: int, row: int) -> None:
        """As near as nothing else that counts stands in the way."""
        columns = sorted(range(self.width), key=lambda c: (abs(c - column), c < column))
        free = next((c for c in columns if (c, row) not in self._kept), column)
        self.write(free, row, letter, keep=True)

    def free(self, column: int, row: int, length: int) -> bool:
        if column < 0 or column + length > self.width or not 0 <= row < self.height:
            return False
        return all((c, row) not in self._kept for c in range(column, column + length))

    def blank(self, column: int, row: int, length: int) -> bool:
        return (
            self.free(column, row, length) and not "".join(self._cells[row][column : column + length]).strip()
        )

    def lines(self) -> list[str]:
        return ["".join(row) for row in self._cells]


def _draw_roofs(canvas: _Canvas, chart: Roofline, axes: Axes) -> None:
    """Each flat roof from the memory roof rightwards; the memory roof up to the highest of them."""
    steps = canvas.width * 4
    top = chart.roofs[-1].rate
    for step in range(steps):
        across = (step + 0.5) / steps
        by_memory = chart.bandwidth * 10 ** (axes.left + across * (axes.right - axes.left))
        if 10**axes.bottom <= by_memory <= top:
            canvas.dot(across, axes.up(by_memory))
        for roof in chart.roofs:
            if by_memory > roof.rate:
                canvas.dot(across, axes.up(roof.rate))


def _label_roofs(canvas: _Canvas, chart: Roofline, axes: Axes) -> None:
    """A flat roof's name stands at its right end, above it or nearby; the memory's left of its slope."""
    for roof in chart.roofs:
        text = f" {roof.name} {quantity(roof.rate, 'FLOP/s')}"
        _, row = canvas.cell(1.0, axes.up(roof.rate))
        column = canvas.width - len(text)
        rows = [r for r in (row - 1, row, row + 1) if canvas.free(column, r, len(text))]
        if rows:
            canvas.write(column, rows[0], text, keep=True)
    text = f"memory {quantity(chart.bandwidth, 'B/s')} "
    for row in range(canvas.height):
        lowest = (canvas.height - 1 - row) / canvas.height
        rate = 10 ** (axes.bottom + lowest * (axes.top - axes.bottom))
        column = canvas.cell(axes.across(rate / chart.bandwidth), lowest)[0] - len(text)
        if rate < chart.roofs[-1].rate and canvas.blank(column, row, len(text)):
            canvas.write(column, row, text, keep=True)
            return


def _framed(canvas: _Canvas, axes: Axes, marks: Marks) -> list[str]:
    rates = {
        canvas.cell(0.0, axes.up(10.0**power))[1]: quantity(10.0**power, "FLOP/s")
        for power in ticks(axes.bottom, axes.top, canvas.height // 2)
    }
    lines = [
        f"{rates.get(row, ''):>{GUTTER - 1}} {marks.tick if row in rates else marks.wall}{line}".rstrip()
        for row, line in enumerate(canvas.lines())
    ]
    across = {
        canvas.cell(axes.across(10.0**power), 0.0)[0]: power
        for power in ticks(axes.left, axes.right, canvas.width // 10)
    }
    foot = "".join(marks.foot if column in across else marks.floor for column in range(canvas.width))
    numbers = [" "] * (GUTTER + 1 + canvas.width)
    for column, power in across.items():
        text = f"{10.0**power:,.10g}"
        start = min(GUTTER + 1 + column - len(text) // 2, GUTTER + 1 + canvas.width - len(text))
        numbers[start : start + len(text)] = text
    title = "FLOP per byte of memory traffic"
    room = " " * (GUTTER + 1 + max(0, (canvas.width - len(title)) // 2))
    return [*lines, " " * GUTTER + marks.corner + foot, "".join(numbers).rstrip(), room + title]
