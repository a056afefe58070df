"""Index arithmetic means what Python means at every size, and leaves out what need not be computed."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.expert.index import Expr, Index, Negative, flat, loop_index, unflat
from egg.expert.sizes import ONE, Size, Symbol, named, product

SIZES = 3
"""So many captured sizes."""
Move = tuple[str, tuple[int, ...], tuple[Size, ...]]


@st.composite
def shapes(draw: st.DrawFn) -> tuple[Size, ...]:
    found = []
    for name in "abcd"[: draw(st.integers(1, 4))]:
        if draw(st.booleans()):
            values = tuple(draw(st.integers(2, 6)) for _ in range(SIZES))
            found.append(named(name, values))
        else:
            found.append(Size(draw(st.integers(1, 5))))
    return tuple(found)


@st.composite
def journeys(draw: st.DrawFn) -> tuple[tuple[Size, ...], list[Move]]:
    """A shape, and views one after the other: permutes, and reshapes that join or split dimensions."""
    shape = draw(shapes())
    current, moves = shape, list[Move]()
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["permute", "join", "split"]))
        if kind == "permute":
            order = tuple(draw(st.permutations(range(len(current)))))
            after = tuple(current[dim] for dim in order)
            moves.append(("permute", order, current))
        else:
            after = _reshaped(draw, kind, current)
            moves.append(("reshape", (), current))
        current = after
    return shape, moves


def _reshaped(draw: st.DrawFn, kind: str, shape: tuple[Size, ...]) -> tuple[Size, ...]:
    if kind == "join" and len(shape) > 1:
        at = draw(st.integers(0, len(shape) - 2))
        return (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
    splits = [(at, factor) for at, size in enumerate(shape) for factor in size.factors]
    if not splits:
        return (ONE, *shape)
    at, factor = draw(st.sampled_from(splits))
    rest = shape[at].over(Size(1, (factor,)))
    assert rest is not None
    return (*shape[:at], Size(1, (factor,)), rest, *shape[at + 1 :])


def valued(size: Size, which: int) -> int:
    return size.number * prod(symbol.values[which] for symbol in size.factors)


def ended(moves: list[Move], shape: tuple[Size, ...], start: Index) -> Index:
    """The journey on index expressions."""
    index = start
    after = [*(move[2] for move in moves[1:]), None]
    for (kind, order, before), then in zip(moves, after, strict=True):
        if kind == "permute":
            index = tuple(index[dim] for dim in order)
        elif then is not None:
            index = unflat(flat(index, before), then)
    return index


@settings(max_examples=60, deadline=None)
@given(journeys())
def test_views_composed_mean_what_python_means_at_every_size(
    journey: tuple[tuple[Size, ...], list[Move]],
) -> None:
    shape, moves = journey
    moves = moves or [("permute", tuple(range(len(shape))), shape)]
    index = ended(moves, shape, unflat(loop_index("x", product(shape)), shape))
    for which in range(SIZES):
        sizes = {s.name: s.values[which] for size in shape for s in size.factors}
        for position in range(0, prod(valued(size, which) for size in shape), 3):
            expected = _walked(moves, shape, position, which)
            found = [eval(at.code(), {}, {**sizes, "x": position}) for at in index]
            assert found == expected


def _walked(moves: list[Move], shape: tuple[Size, ...], position: int, which: int) -> list[int]:
    coordinates = _coordinates(position, [valued(size, which) for size in shape])
    after = [*(move[2] for move in moves[1:]), None]
    for (kind, order, before), then in zip(moves, after, strict=True):
        if kind == "permute":
            coordinates = [coordinates[dim] for dim in order]
        elif then is not None:
            place = 0
            for at, size in zip(coordinates, before, strict=True):
                place = place * valued(size, which) + at
            coordinates = _coordinates(place, [valued(size, which) for size in then])
    return coordinates


def _coordinates(position: int, shape: list[int]) -> list[int]:
    found = []
    for size in reversed(shape):
        found.append(position % size)
        position //= size
    return found[::-1]


@given(shapes())
def test_there_and_back_is_where_it_was(shape: tuple[Size, ...]) -> None:
    x = loop_index("x", product(shape))
    assert flat(unflat(x, shape), shape) == x


N, C, H, W = named("n", (8, 2, 3)), named("c", (64, 3, 5)), named("h", (64, 7, 4)), named("w", (64, 5, 9))


def test_a_group_of_channels_is_one_run() -> None:
    groups, each = named("groups", (8, 1, 1)), named("each", (8, 3, 5))
    row, place = loop_index("row", N * groups), loop_index("r", each * H * W)
    index = (*unflat(row, (N, groups)), *unflat(place, (each, H, W)))
    assert flat(index, (N, groups, each, H, W)).code() == "row * (each * h * w) + r"


def test_a_coincidence_at_one_size_decides_nothing() -> None:
    """As many channels as rows at the first size: the remainder stays all the same."""
    row = loop_index("row", H)
    assert (row % C).code() == "(row % c)"
    assert (row % H) == row


def test_what_may_be_negative_is_not_divided() -> None:
    with pytest.raises(Negative):
        _ = (loop_index("x", H) - C) // 2
    assert ((loop_index("x", H) - 1) // 2).code() == "((x + 1) // 2) - 1"


def test_strides() -> None:
    x = loop_index("x", N * C)
    at = (x // C) * (C * H) + (x % C) * H
    assert at.stride_of("x") == H
    assert (x % C).stride_of("x") is None
    assert at.stride_of("y") == Size(0)


def test_exact_quotients_of_sizes() -> None:
    assert (N * C * 6).over(C * 3) == N * 2
    assert (N * C).over(H) is None
    assert Size(1, (Symbol("n", (8, 2, 3)),)) == N
    assert Expr().code() == "0"
