"""Ways to move the integers of a program away from its own size.

Captures at other sizes distinguish numbers only if the sizes are unlike each other: odd, so that nothing
divides by accident, and each moved by another share, so that one is not half of another at every size. A
size that must stay divisible moves in eighths or in parts; sizes that must stay equal move together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from egg.evaluator.task.knobs import Knob

Sizes = tuple[int, ...]
Way = Callable[[int, int, int], int]
"""From a value, the knob's place and the number of the variant to another value."""


@dataclass(frozen=True)
class Move:
    """How one knob moves."""

    way: Way
    together: bool = False
    """With others, by the same share."""
    multiple: bool = False
    """And then several times over, as often as no other variant: outputs of a depthwise convolution."""


def odd(value: int, place: int, variant: int) -> int:
    """An odd share; every knob has its own order of shares, and its own distance from the others."""
    share = (5, 3, 7, 9, 6)[(2 * place + variant * (1 + place % 3)) % 5]
    return max((value * share // 8) | 1, 3) + _apart(place, variant)


def near(value: int, place: int, variant: int) -> int:
    """A little larger and odd: where a size must not fall below what a network needs."""
    return ((value + 4 * (variant + 1)) | 1) + _apart(place, variant)


def eighths(value: int, place: int, variant: int) -> int:
    """So many eighths: the divisors of an eighth are left."""
    steps = (3, 5, 7, 9, 11, 13, 15)
    return max(value // 8, 1) * steps[(2 * variant + place) % len(steps)]


def odd_multiples(value: int, place: int, variant: int) -> int:
    """Of the largest power of two in it: a size that is cut into patches."""
    power = value & -value
    return power * max(value // power + (-2, 2, 4)[variant], 1)


def parts(value: int, place: int, variant: int) -> int:
    """Of a size that must divide another: heads, groups."""
    return max(value // (2, 4, 1)[variant], 2)


def halves(value: int, place: int, variant: int) -> int:
    return max(value // 2, min(value, 2)) * (1, 3, 5)[variant]


def doubled(value: int, place: int, variant: int) -> int:
    """Powers of two only."""
    return value * (2, 4, 8)[variant]


def _apart(place: int, variant: int) -> int:
    return 2 * place * (1, 3, 2)[variant]


FREE: tuple[Way, ...] = (odd, near, eighths, odd_multiples)
"""They say little about divisors. A knob goes the others only when it cannot move with its equals."""
WAYS: tuple[Way, ...] = (*FREE, parts, halves, doubled)


def alone(index: int, ways: Sequence[Way]) -> list[dict[int, Move]]:
    """Moves of one knob, the most telling first."""
    return [{index: Move(way)} for way in ways]


def jointly(group: Sequence[int]) -> list[dict[int, Move]]:
    """Moves of several: of two that are equal one may be a multiple of the other, else by one share."""
    found: list[dict[int, Move]] = []
    if len(group) == 2:
        pairs = (tuple(group), tuple(reversed(group)))
        found += [
            {a: Move(way, together=True), b: Move(way, together=True, multiple=True)}
            for way in (odd, eighths)
            for a, b in pairs
        ]
    return [*found, *({i: Move(way, together=True) for i in group} for way in WAYS if way is not parts)]


def moved(knobs: Sequence[Knob], manner: Mapping[int, Move], variant: int) -> Sizes:
    """The values of all knobs in one variant.

    None goes to 1: PyTorch repeats a dimension of 1 to any size, so that a program which runs there may not
    take any other size.
    """
    sizes = []
    for index, knob in enumerate(knobs):
        move = manner.get(index)
        if move is None:
            sizes.append(knob.value)
        elif knob.batch and move == Move(odd):
            value = (3, 5, 7)[variant]
            sizes.append(value if value != knob.value else 11)
        else:
            value = max(move.way(knob.value, 0 if move.together else index, variant), min(knob.value, 2))
            value = value if value != knob.value or move.way is parts else value + 2
            sizes.append(value * (2, 3, 1)[variant] if move.multiple else value)
    return tuple(sizes)
