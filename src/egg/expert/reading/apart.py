"""Where a dimension goes that is captured at sizes of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from egg.evaluator.task.dimensions import Axis, fresh


def moved_axis(axis: Axis, place: int, number: int, taken: set[int]) -> int | None:
    """Where an axis goes in one of the captures: by another share than all others, so that halves of halves
    still differ.

    Odd, but not all of them in every capture: the sum of two odd sizes is even, and half of it would pass for
    an exact part. A size that is odd itself is even in one of them: what rounds it would pass for the size.
    """
    size, step = axis.size, axis.step
    if step > 1:
        return next(
            (v for k in range(1 + number, 64) if (v := size + step * (k + 2 * place)) not in taken), None
        )
    if axis.seen[0] > size:
        share = (11 + 3 * place, 25 - 2 * place, 14 + 5 * place)[number]
        value = fresh(size * max(share, 9) // 8 + 1 + 2 * place, size, taken)
        even = _even(place + size % 2, number)
        return next(n for n in count(value + 1, 2) if n not in taken) if even else value
    start = (size - 1 - 2 * place, size // 2 + 2 * place, size - size // 4 - 4 * place)[number]
    value = fresh(start, size, taken, -2)
    return value if value > 1 else None


def _even(place: int, number: int) -> bool:
    """Of any two of the first four axes one is odd and the other even in the first or the second capture."""
    return number < 2 and bool(place >> (1 - number) & 1)


def alike(axes: Sequence[Axis]) -> list[Axis]:
    """Axes of one size in one position as one axis: a forward without data may not say that they belong
    together, and the graph does."""
    found: dict[tuple[object, ...], Axis] = {}
    for axis in axes:
        key = (axis.size, axis.step, tuple(sorted({place.dim for place in axis.places})))
        places = found[key].places if key in found else ()
        found[key] = replace(axis, places=tuple(sorted((*places, *axis.places))))
    return list(found.values())
