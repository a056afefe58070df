"""The pictures of a run: speed over its steps with what was predicted, and the times of all contestants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from markupsafe import Markup

from egg.core.evaluation import Interval
from egg.report.canvas import CHARACTER, WIDE, Picture, Scale, drawn, figure, label, line, tip
from egg.report.elements import element
from egg.report.numbers import ends, time, times
from egg.report.placing import Box, steps

TOP, FOOT, LEFT, RIGHT = 30, 34, 44, 10
"""Room around the plot of steps."""
ABBREVIATED = {"structure": "struct.", "mapping": "map", "tiling": "tile", "memory": "mem.", "regrade": "end"}
GAP = 5.0
"""Between the names of two steps."""
ROW, BAR = 34, 12
"""Height of a contestant, and of its bar."""


class Fate(StrEnum):
    """The outcome of a step, as far as the picture goes."""

    KEPT = "kept"
    TRIED = "tried"
    FAILED = "failed"
    PASSED = "passed"


@dataclass(frozen=True)
class Mark:
    """One step in the picture. Speeds are relative, larger is faster."""

    name: str
    stage: str
    fate: Fate
    speed: Interval | None = None
    predicted: float | None = None
    text: str = ""


@dataclass(frozen=True)
class Level:
    """A speed to compare with, all the way across."""

    name: str
    speed: float
    kind: str


def steps_chart(marks: Sequence[Mark], levels: Sequence[Level], unit: str) -> Markup:
    """Speed over steps; ``unit`` says relative to what."""
    kept = [m for m in marks if m.fate is Fate.KEPT and m.speed is not None]
    description = f"{unit}. " + " ".join(_mark_text(mark) for mark in marks)
    title = "Speed over steps"
    if kept and kept[-1].speed is not None:
        title += f": the last one kept is at {times(kept[-1].speed.median)}"
    return drawn("steps", title, description, lambda width: _steps(marks, levels, width))


def steps_key(marks: Sequence[Mark]) -> tuple[tuple[str, str, str], ...]:
    """Classes and signs of the picture with their meaning: those that are drawn, and no other."""
    drawn = {mark.fate for mark in marks if mark.speed is not None}
    known = (
        ("kept", "●", "kept", Fate.KEPT in drawn),
        ("tried", "○", "tried, not better", Fate.TRIED in drawn),
        ("predicted", "◇", "predicted", any(m.predicted is not None and m.speed is not None for m in marks)),
        ("failed", "×", "failed", any(m.speed is None and m.fate is not Fate.PASSED for m in marks)),
        ("untried", "–", "nothing tried", any(m.fate is Fate.PASSED for m in marks)),
    )
    return tuple((kind, sign, meaning) for kind, sign, meaning, seen in known if seen)


def _mark_text(mark: Mark) -> str:
    speed = f" {times(mark.speed.median)}" if mark.speed is not None else ""
    predicted = f", predicted {times(mark.predicted)}" if mark.predicted is not None else ""
    return f"{mark.name}, {mark.stage}: {mark.fate.value}{speed}{predicted}."


def _steps(marks: Sequence[Mark], levels: Sequence[Level], width: int) -> Picture:
    height = 300 if width == WIDE else 270
    bottom = height - FOOT
    speeds = [end for m in marks if m.speed for end in (m.speed.low, m.speed.high)]
    speeds += [m.predicted for m in marks if m.predicted] + [level.speed for level in levels]
    up = Scale.around(speeds, bottom - 14, TOP + 8, air=1.15)
    slot = (width - LEFT - RIGHT) / max(1, len(marks))
    across = [LEFT + (i + 0.5) * slot for i in range(len(marks))]
    parts = [
        *_bands(marks, slot, bottom),
        *_rulers(up, width),
        *_levels(levels, up, width, _mark_boxes(marks, across, up)),
        *_best_so_far(marks, across, up, width),
        *(part for mark, x in zip(marks, across, strict=True) for part in _mark(mark, x, up, bottom)),
        *_numbers(marks, across, slot, bottom),
        label("step", LEFT + (width - LEFT - RIGHT) / 2, height - 3, "middle"),
    ]
    return Picture(height, tuple(parts))


def _bands(marks: Sequence[Mark], slot: float, bottom: float) -> list[str]:
    """Stages side by side, each with its name where there is room for it, or for a short form."""
    parts, first = [], 0
    for number, (stage, found) in enumerate(groupby(marks, key=lambda mark: mark.stage)):
        count = len(list(found))
        x, wide = LEFT + first * slot, count * slot
        kind = "band even" if number % 2 else "band"
        parts.append(element("rect", tip(stage), kind=kind, x=x, y=4, width=wide, height=bottom - 4))
        forms = [stage, ABBREVIATED.get(stage, stage)]
        name = next((form for form in forms if len(form) * CHARACTER <= wide), "")
        parts.append(label(name, x + wide / 2, 18, "middle"))
        first += count
    return parts


def _rulers(up: Scale, width: int) -> list[str]:
    parts = []
    for value in up.ticks(7):
        y = up.at(value)
        parts.append(line("ruler", LEFT, y, width - RIGHT, y))
        parts.append(label(f"{figure(value)}×", LEFT - 6, y + 4, "end"))
    return parts


def _levels(levels: Sequence[Level], up: Scale, width: int, taken: list[Box]) -> list[str]:
    """Lines to compare with, each with its name above or below it where no step and no other name is."""
    parts = []
    for level in sorted(levels, key=lambda level: -level.speed):
        y = up.at(level.speed)
        name = f"{level.name} {times(level.speed)}"
        box = _beside(y, len(name) * CHARACTER, width, taken)
        taken.append(box)
        at_end = box.right == width - RIGHT - 3
        x, anchor = (box.right, "end") if at_end else (box.left, "start")
        parts.append(line(f"level {level.kind}", LEFT, y, width - RIGHT, y))
        parts.append(label(name, x, box.bottom - 3, anchor, "halo"))
    return parts


def _beside(y: float, wide: float, width: int, taken: Sequence[Box]) -> Box:
    """Room for a name of a line: at the right end, at the left one, or between two steps."""
    first, last = LEFT + 3.0, width - RIGHT - 3 - wide
    starts = [last, first, *steps(first, last, GAP)]
    places = [
        Box(start, base - 10, start + wide, base + 3)
        for ends_ in (starts[:1], starts[1:2], starts[2:])
        for base in (y - 4, y + 13)
        for start in ends_
    ]
    return next((place for place in places if not any(map(place.meets, taken))), places[0])


def _mark_boxes(marks: Sequence[Mark], across: Sequence[float], up: Scale) -> list[Box]:
    """What the signs of all steps cover."""
    boxes = []
    for mark, x in zip(marks, across, strict=True):
        speeds = (mark.speed.median if mark.speed is not None else None, mark.predicted)
        boxes += [Box.around(x, up.at(speed), 7, 7) for speed in speeds if speed is not None]
    return boxes


def _best_so_far(marks: Sequence[Mark], across: Sequence[float], up: Scale, width: int) -> list[str]:
    """A staircase through what was kept."""
    path, y = "", None
    for mark, x in zip(marks, across, strict=True):
        if mark.fate is Fate.KEPT and mark.speed is not None:
            new = up.at(mark.speed.median)
            path += f"M{x:.1f} {new:.1f}" if y is None else f"H{x:.1f}V{new:.1f}"
            y = new
    return [element("path", kind="stairs", d=f"{path}H{width - RIGHT}")] if y is not None else []


def _mark(mark: Mark, x: float, up: Scale, bottom: float) -> list[str]:
    hover = tip(f"{mark.name}, {mark.stage}: {mark.text}")
    if mark.fate is Fate.PASSED:
        dash = f"M{x - 4:.1f} {bottom - 6:.1f}h8"
        return [element("path", hover, kind="untried", d=dash)]
    if mark.speed is None:
        cross = f"M{x - 4:.1f} {bottom - 10:.1f}l8 8m0 -8l-8 8"
        return [element("path", hover, kind="failed", d=cross)]
    y = up.at(mark.speed.median)
    parts = []
    if mark.predicted is not None:
        at = up.at(mark.predicted)
        parts.append(line("missed", x, at, x, y))
        parts.append(element("path", hover, kind="predicted", d=f"M{x:.1f} {at - 5:.1f}l5 5l-5 5l-5 -5z"))
    parts.append(line("whisker", x, up.at(mark.speed.low), x, up.at(mark.speed.high)))
    parts.append(element("circle", hover, kind=mark.fate.value, cx=x, cy=y, r=5))
    return parts


def _numbers(marks: Sequence[Mark], across: Sequence[float], slot: float, bottom: float) -> list[str]:
    """Names below the steps, at even distances; none that would touch the one to its right."""
    every = max(1, -(-int(CHARACTER * 3) // max(1, int(slot))))
    parts, free = [], math.inf
    for i in range(len(marks) - 1, -1, -1):
        half = len(marks[i].name) * CHARACTER / 2 + GAP / 2
        if (i % every == 0 or i == len(marks) - 1) and across[i] + half < free:
            parts.append(label(marks[i].name, across[i], bottom + 15, "middle"))
            free = across[i] - half
    return parts[::-1]


# -- times -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contestant:
    """One time in the comparison; without an interval it was computed, not measured."""

    name: str
    milliseconds: float
    kind: str
    interval: Interval | None = None


def times_chart(contestants: Sequence[Contestant], predicted: bool) -> Markup:
    """A bar for each, from zero, so that lengths compare as times do."""
    sentences = [f"{c.name} {time(c.milliseconds)}{_between(c)}." for c in contestants]
    title = "Predicted time of one call" if predicted else "Time of one call, measured in turns"
    return drawn("times", title, " ".join(sentences), lambda width: _times(contestants, width))


def _between(contestant: Contestant) -> str:
    return f" ({ends(contestant.interval)} ms)" if contestant.interval is not None else ""


def _times(contestants: Sequence[Contestant], width: int) -> Picture:
    longest = max(c.milliseconds for c in contestants) or 1.0
    room = width - 80
    parts = []
    for i, contestant in enumerate(contestants):
        top = 2 + i * ROW
        length = max(1.5, contestant.milliseconds / longest * room)
        hover = tip(f"{contestant.name}: {time(contestant.milliseconds)}{_between(contestant)}")
        parts += [
            label(contestant.name, 0, top + 11, kind=""),
            element(
                "rect",
                hover,
                kind=f"bar {contestant.kind}",
                x=0,
                y=top + 16,
                width=length,
                height=BAR,
                rx=2,
            ),
        ]
        end = length
        if contestant.interval is not None:
            low, high = (end / longest * room for end in (contestant.interval.low, contestant.interval.high))
            middle, end = top + 16 + BAR / 2, max(length, high)
            beam = f"M{low:.1f} {middle - 8:.1f}v16M{low:.1f} {middle:.1f}H{high:.1f}m0 -8v16"
            parts.append(element("path", kind="whisker", d=beam))
        parts.append(label(time(contestant.milliseconds), end + 6, top + 26))
    return Picture(ROW * len(contestants) + 4, tuple(parts))
