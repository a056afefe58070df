"""Tunables: the values a kernel file leaves open, as data.

A kernel file declares them with a module-level table whose keys are module-level constants::

    BLOCK, NUM_WARPS = 1024, 4
    TUNABLES = {"BLOCK": (512, 1024, 2048), "NUM_WARPS": (4, 8)}

so that a search may try other points without new code.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

Value = int | bool | str
Point = Mapping[str, Value]


@dataclass(frozen=True)
class Tunable:
    """One constant, what it is now, and what it may be."""

    name: str
    current: Value
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        if len(set(self.values)) != len(self.values) or self.current not in self.values:
            raise ValueError(f"{self.name}: {self.current!r} must be one of distinct values {self.values}")
        if len({type(v) for v in self.values}) != 1:
            raise ValueError(f"{self.name}: values of one type, not {self.values}")


@dataclass(frozen=True)
class Space:
    """All tunables of a kernel file."""

    tunables: tuple[Tunable, ...]

    @property
    def size(self) -> int:
        return math.prod(len(t.values) for t in self.tunables)

    @property
    def current(self) -> Point:
        return {t.name: t.current for t in self.tunables}

    def points(self) -> Iterator[Point]:
        """Every point, the first tunable varying slowest."""
        names = [t.name for t in self.tunables]
        for values in product(*(t.values for t in self.tunables)):
            yield dict(zip(names, values, strict=True))


@dataclass(frozen=True)
class SweepPoint:
    """One point that was tried: its kernel, and its time or why it has none."""

    formerly: ClassVar[Mapping[str, str]] = {"told": "outcome"}
    values: Mapping[str, Value]
    candidate: str
    """Hash of the kernel file at this point."""
    milliseconds: float | None
    outcome: str
    """``measured``, ``predicted``, or the reason it was refused."""


@dataclass(frozen=True)
class Sweep:
    """Every point of one sweep, and which won."""

    size: int
    """Points the space has; more than were tried where it is large."""
    points: tuple[SweepPoint, ...]
    winner: str
    """Hash of the kernel file at the best point; the file that declared the space, if none was better."""
