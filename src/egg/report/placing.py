"""Finding room for labels in a picture: near what they name, over nothing else."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

ACROSS, DOWN = 8.0, 7.0
"""Pixels between the places that are looked at."""
NEAR = 100
"""Free places for a label that are looked at."""
CROSSING = 1000.0
"""How bad a line over something else is, in pixels of a longer line."""


@dataclass(frozen=True)
class Box:
    """A rectangle by its edges, y downwards."""

    left: float
    top: float
    right: float
    bottom: float

    @classmethod
    def around(cls, x: float, y: float, half_width: float, half_height: float) -> Box:
        return cls(x - half_width, y - half_height, x + half_width, y + half_height)

    def meets(self, other: Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def nearest_to(self, x: float, y: float) -> tuple[float, float]:
        return min(max(x, self.left), self.right), min(max(y, self.top), self.bottom)

    def distance(self, x: float, y: float) -> float:
        """From a point; places right and left of it come before those above and below."""
        near_x, near_y = self.nearest_to(x, y)
        return math.hypot(near_x - x, 1.5 * (near_y - y)) + 0.01 * abs((self.top + self.bottom) / 2 - y)


class Field:
    """A picture's inside, and what is taken of it."""

    def __init__(self, bounds: Box) -> None:
        self._bounds = bounds
        self._taken: list[Box] = []
        self._solid: list[Box] = []

    def take(self, *boxes: Box, solid: bool = False) -> None:
        """Keep labels off; off what is ``solid``, the lines that lead to labels, too."""
        self._taken += boxes
        if solid:
            self._solid += boxes

    def copy(self) -> Field:
        made = Field(self._bounds)
        made._taken, made._solid = list(self._taken), list(self._solid)
        return made

    def nearest(self, x: float, y: float, width: float, height: float) -> tuple[Box, float]:
        """The free place for a label that is nearest to a point, and what is bad about it; takes it.

        Of the near places, rather one that a straight line reaches without crossing something.
        """
        places = sorted(self._places(width, height), key=lambda box: box.distance(x, y))
        free = (box for box in places if not any(box.meets(taken) for taken in self._taken))
        near = list(itertools.islice(free, NEAR)) or places[:1]
        found = next((box for box in near if not self._crossed(x, y, box)), None)
        box = found or near[0]
        self.take(*_along(x, y, box))
        self.take(box, solid=True)
        return box, CROSSING if found is None else box.distance(x, y)

    def _places(self, width: float, height: float) -> list[Box]:
        bounds = self._bounds
        return [
            Box(left, top, left + width, top + height)
            for left in steps(bounds.left, bounds.right - width, ACROSS)
            for top in steps(bounds.top, bounds.bottom - height, DOWN)
        ]

    def _crossed(self, x: float, y: float, box: Box) -> bool:
        others = [thing for thing in self._solid if thing.nearest_to(x, y) != (x, y)]
        return any(step.meets(thing) for step in _along(x, y, box) for thing in others)


def steps(first: float, last: float, step: float) -> list[float]:
    """From ``first`` to ``last``, and ``first`` in any case."""
    return [first + index * step for index in range(max(1, int((last - first) / step + 1e-9) + 1))]


def _along(x: float, y: float, box: Box) -> list[Box]:
    """The straight way from a point to a box, as small boxes; nothing at its two ends."""
    end_x, end_y = box.nearest_to(x, y)
    count = int(math.hypot(end_x - x, end_y - y) / 5)
    shares = [step / count for step in range(1, count)]
    return [Box.around(x + (end_x - x) * share, y + (end_y - y) * share, 1, 1) for share in shares]
