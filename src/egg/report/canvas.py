"""What every chart of a page needs: a picture in two widths, and a scale on which ratios are lengths.

A page is read on a computer and on a phone. A picture that only shrinks becomes unreadable, so each is drawn
twice, and the page's style shows the one that fits. Colours come from classes of that style, so that light
and dark are its business.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from markupsafe import Markup

from egg.report.elements import element, text, words

WIDE, NARROW = 720, 350
"""Of the two pictures, in units that are pixels where there is room..."""
WIDEST = 1040
"""...and of the wide one on a page with wide tables."""
CHARACTER = 6.6
"""Width of one at the size that charts are written in, on the safe side."""

_STEPS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9))
"""Places of ticks within a power of ten, from few to many."""


@dataclass(frozen=True)
class Picture:
    """What was drawn at one width."""

    height: float
    parts: tuple[str, ...]


def drawn(
    name: str, title: str, description: str, draw: Callable[[int], Picture], wide: int = WIDE
) -> Markup:
    """The picture at both widths; ``description`` is for screen readers."""
    return Markup("").join(
        Markup(_svg(f"{name}-{kind}", kind, width, title, description, draw(width)))
        for kind, width in (("wide", wide), ("narrow", NARROW))
    )


def _svg(name: str, kind: str, width: int, title: str, description: str, picture: Picture) -> str:
    inside = [
        element("title", text(title), id=f"{name}-title"),
        element("desc", text(description), id=f"{name}-desc"),
        *picture.parts,
    ]
    size = {"viewBox": f"0 0 {width} {picture.height:.0f}", "width": width, "height": round(picture.height)}
    named = {"role": "img", "aria-labelledby": f"{name}-title {name}-desc"}
    return element("svg", "\n".join(["", *inside, ""]), kind=f"chart {kind}", **size, **named)


@dataclass(frozen=True)
class Scale:
    """Positive numbers onto a line from ``start`` to ``end``, equal ratios at equal distances."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def around(
        cls, values: Iterable[float], start: float, end: float, *, least: float = 2.0, air: float = 1.08
    ) -> Scale:
        """One that holds all ``values`` with some air, and spans a factor of ``least`` at least."""
        seen = [value for value in values if 0 < value < math.inf] or [1.0]
        low, high = min(seen) / air, max(seen) * air
        missing = math.sqrt(max(1.0, least / (high / low)))
        return cls(low / missing, high * missing, start, end)

    def at(self, value: float) -> float:
        """What lies beyond the ends stands on them."""
        share = math.log(max(value, 1e-300) / self.low) / math.log(self.high / self.low)
        return self.start + (self.end - self.start) * min(1.0, max(0.0, share))

    def ticks(self, most: int) -> list[float]:
        """Round numbers within, as many as there is room for and no more."""
        best: list[float] = []
        for places in _STEPS:
            found = self._round(places)
            if len(found) > most:
                break
            best = found
        return best if len(best) > 1 else self._round(_STEPS[-1])[: max(2, most)]

    def _round(self, places: tuple[float, ...]) -> list[float]:
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        numbers = (place * 10.0**power for power in powers for place in places)
        return [number for number in numbers if self.low <= number <= self.high]


def figure(value: float) -> str:
    """A tick's number: ``0.5``, ``1``, ``20``."""
    return f"{value:,.10g}" if value >= 1 else f"{value:.3g}"


def line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return element("line", kind=kind, x1=x1, y1=y1, x2=x2, y2=y2)


def tip(content: str) -> str:
    """The text that a browser shows while the pointer rests on an element."""
    return element("title", text(content))


def label(content: str, x: float, y: float, anchor: str = "start", kind: str = "quiet") -> str:
    return words(content, x, y, anchor, kind)
