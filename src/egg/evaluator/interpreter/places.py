"""The number of a program and its place in the grid.

Programs are numbered from 1 with ``program_id(0)`` running fastest, which is the order in which a GPU starts
them. They are interpreted in this order, so a program that waits for one of a higher number waits for ever
here, as it does on a GPU that is full.
"""

from __future__ import annotations

from collections.abc import Sequence


def place_of(number: int, grid: Sequence[int]) -> tuple[int, ...]:
    place: list[int] = []
    rest = number - 1
    for size in grid:
        rest, at = divmod(rest, size)
        place.append(at)
    return tuple(place)


def number_of(place: Sequence[int], grid: Sequence[int]) -> int:
    number = 0
    for at, size in zip(reversed(place), reversed(grid), strict=True):
        number = number * size + at
    return number + 1
