"""Launches that ran in part, and which of their programs make what a later launch reads.

Where a program stores is nearly always affine in its place in the grid: from ``c + a * pid0 + b * pid1`` on.
From the programs that ran the coefficients follow, and a byte leads back to the place of the program that
stores it. A tile of several rows begins again at every row of the tensor: the pitch of its rows is read from
what one program stored. Where the places are not affine (a grid that is swizzled), programs of the later
launch are tried at the places at which the earlier ones ran.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from egg.evaluator.interpreter.places import number_of, place_of

FEWEST = 4
"""Programs that place the others, by where they store."""
MOST_PLACED = 64
MOST_GUIDED = 240


class Missing(BaseException):
    """Ends a program that loads what no program of an earlier launch has written."""

    def __init__(self, address: int, offsets: np.ndarray, itemsize: int, *, made: bool) -> None:
        """Elements of so many bytes at these bytes of a memory; ``made``: whether they may be made behind it,
        which they may not where the launch itself stores to that memory."""
        super().__init__()
        self.address, self.offsets, self.itemsize, self.made = address, offsets, itemsize, made


@dataclass
class Written:
    """The bytes of one storage that the programs that ran stored, in units of so many."""

    itemsize: int
    elements: np.ndarray
    owner: Any = None
    """Keeps the memory, so that its address stays the name of this storage."""

    def mark(self, offsets: np.ndarray, itemsize: int, value: bool = True) -> None:
        """Elements of ``itemsize`` bytes at these bytes of the storage."""
        for units in self._units(offsets, itemsize):
            self.elements[units] = value

    def has(self, offsets: np.ndarray, itemsize: int) -> np.ndarray:
        """For each element whether all of it was stored."""
        there = np.ones(offsets.shape, dtype=bool)
        for units in self._units(offsets, itemsize):
            there &= self.elements[units]
        return there

    def by(self, itemsize: int) -> np.ndarray:
        """For each element of that size whether all of it was stored."""
        self._refine(itemsize)
        count = itemsize // self.itemsize
        whole = self.elements[: len(self.elements) // count * count]
        return np.asarray(whole.reshape(-1, count).all(axis=1))

    def _units(self, offsets: np.ndarray, itemsize: int) -> Iterator[np.ndarray]:
        odd = offsets[offsets % itemsize != 0]
        self._refine(int(np.gcd.reduce(odd, initial=itemsize)))
        first = offsets // self.itemsize
        return (first + unit for unit in range(itemsize // self.itemsize))

    def _refine(self, itemsize: int) -> None:
        unit = math.gcd(itemsize, self.itemsize)
        if unit != self.itemsize:
            self.elements = np.repeat(self.elements, self.itemsize // unit)
            self.itemsize = unit


@dataclass
class Stores:
    """Where programs of one launch stored in one memory."""

    first: dict[int, int] = field(default_factory=dict)
    """By the number of a program: its first byte."""
    pitch: int = 0
    """Bytes from one row of a tile to the next; 0 where it has one."""

    def note(self, program: int, offsets: np.ndarray, itemsize: int) -> None:
        if not len(offsets):
            return
        if not self.first:
            self.pitch = _pitch(offsets, itemsize)
        low = int(offsets.min())
        self.first[program] = min(low, self.first.get(program, low))


@dataclass(frozen=True)
class Trail:
    """A launch that ran in part."""

    grid: tuple[int, ...]
    ran: list[int]
    """Numbers of the programs that did."""
    stores: Mapping[int, Stores]
    """By the address of a memory."""
    run: Callable[[int], None]
    """Runs another of its programs."""
    races: Any
    """What watches them (:class:`egg.evaluator.interpreter.excerpt.ExcerptRaces`)."""
    unchanged: Callable[[], bool]
    """Whether what the launch loaded is what it was."""

    def makers(self, address: int, offsets: np.ndarray) -> list[int]:
        """Programs that store these bytes of a memory, as far as that can be said."""
        stores = self.stores.get(address)
        if stores is None or len(stores.first) < FEWEST:
            return []
        numbers = list(stores.first)[-MOST_PLACED:]
        places = np.array([place_of(number, self.grid) for number in numbers], dtype=np.float64)
        known = np.array([stores.first[number] for number in numbers], dtype=np.float64)
        axes = np.column_stack([np.ones(len(numbers)), places])
        by = np.rint(np.linalg.lstsq(axes, known, rcond=None)[0])
        if np.abs(axes @ by - known).max() > 0:
            return []
        rest = offsets - int(by[0])
        found = np.zeros((len(offsets), len(self.grid)), dtype=np.int64)
        for axis in np.argsort(-by[1:]):
            step = int(by[1 + axis])
            if step <= 0 or self.grid[axis] == 1:
                continue
            within = rest % stores.pitch if step < stores.pitch else rest
            found[:, axis] = np.clip(within // step, 0, self.grid[axis] - 1)
            rest = within - found[:, axis] * step
        made = {number_of(tuple(place), self.grid) for place in np.unique(found, axis=0).tolist()}
        return sorted(made - set(self.ran))


def guided(trails: list[Trail], grid: tuple[int, ...], lot: random.Random) -> list[tuple[int, ...]]:
    """Places that may read what programs of earlier launches made: the last launch's first, at the same place
    along an axis of the same size and at the same share of the grid."""
    found: list[tuple[int, ...]] = []
    total = math.prod(grid)
    for trail in reversed(trails):
        share = total / math.prod(trail.grid)
        same = [
            (a, b)
            for a, one in enumerate(trail.grid)
            for b, other in enumerate(grid)
            if one == other and one > 1
        ]
        for number in lot.sample(trail.ran, min(len(trail.ran), MOST_GUIDED // max(1, len(trails)))):
            there = place_of(number, trail.grid)
            for a, b in same:
                place = [lot.randrange(size) for size in grid]
                place[b] = there[a]
                found.append(tuple(place))
            found.append(place_of(min(total, 1 + int((number - 1) * share)), grid))
    return found


def _pitch(offsets: np.ndarray, itemsize: int) -> int:
    places = np.unique(offsets)
    begins = places[1:][np.diff(places) > itemsize]
    return int(begins[0] - places[0]) if len(begins) else 0
