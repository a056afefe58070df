"""What a loop carries from trip to trip, put forward in even steps."""

from __future__ import annotations

from collections.abc import Callable

import torch

from egg.evaluator.work.values import Descriptor, Known, Number, Pointer, tensor_of

Carried = tuple[Known, ...]


class Uneven(Exception):
    """What a loop carries does not go forward in even steps."""


def stepping(start: Carried, second: Carried) -> Callable[[int], Carried]:
    """What a loop carries into any trip, if it goes on as in its first."""
    if len(start) != len(second):
        raise ValueError("a loop hands on as many values as it was given")
    moves = [_step(a, b) for a, b in zip(start, second, strict=True)]
    return lambda trip: tuple(move(trip) for move in moves)


def _step(a: Known, b: Known) -> Callable[[int], Known]:
    if isinstance(a, Number) and isinstance(b, Number):
        if isinstance(a.value, float) or isinstance(b.value, float):
            return lambda trip: a if trip == 0 else None
        guessed, by, origin = a.guessed or b.guessed, b.value - a.value, a.value
        return lambda trip: Number(origin + by * trip, guessed)
    if isinstance(a, Pointer) and isinstance(b, Pointer):
        if a.argument != b.argument:
            raise Uneven
        guessed, by, origin = a.guessed or b.guessed, b.offset - a.offset, a.offset
        return lambda trip: Pointer(a.argument, origin + by * trip, guessed)
    if isinstance(a, Descriptor) and a == b:
        return lambda trip: a
    return lambda trip: (a, b)[trip] if trip < 2 else None


def same(a: Known, b: Known) -> bool:
    """Whether two values are equal as far as they are known."""
    if isinstance(a, Number) and isinstance(b, Number):
        x, y, guessed = a.value, b.value, a.guessed or b.guessed
    elif isinstance(a, Pointer) and isinstance(b, Pointer):
        if a.argument != b.argument:
            return False
        x, y, guessed = a.offset, b.offset, a.guessed or b.guessed
    else:
        return True
    if guessed:
        return True
    if isinstance(x, torch.Tensor) or isinstance(y, torch.Tensor):
        return bool((tensor_of(x) == tensor_of(y)).all())
    return x == y


def scalar(value: Known) -> int | None:
    """A whole number that is really known."""
    if isinstance(value, Number) and not value.guessed and isinstance(value.value, int):
        return value.value
    return None


def truth(value: Known) -> bool | None:
    number = scalar(value)
    return None if number is None else bool(number)


def held(value: Known) -> int:
    """Elements that are held in memory for it."""
    if isinstance(value, Descriptor) or value is None:
        return 0
    tile = value.offset if isinstance(value, Pointer) else value.value
    return tile.numel() if isinstance(tile, torch.Tensor) else 0


def as_guess(value: Known) -> Known:
    """The same, no longer relied upon."""
    if isinstance(value, Number):
        return Number(value.value, True)
    return Pointer(value.argument, value.offset, True) if isinstance(value, Pointer) else value
