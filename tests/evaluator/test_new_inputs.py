"""Inputs of timed calls: made new for every call, in the same way on both sides, and of the same kind."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.evaluator.reference.reserve import Reserve, how_many
from egg.evaluator.transport import freshen
from egg.evaluator.transport.freshen import Kind

KINDS = [Kind.LOOSE, Kind.DRAWN, Kind.FIXED]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(2, 700), min_size=3, max_size=3), st.integers(0, 2**32))
def test_both_sides_make_the_same_moves_and_the_values_stay_of_their_kind(
    sizes: list[int], seed: int
) -> None:
    ours = [torch.randn(n) for n in sizes]
    theirs, before = [t.clone() for t in ours], [t.clone() for t in ours]
    reserve = [[torch.randn(n) for n in sizes] for _ in range(3)]
    moves = freshen.draw(ours, KINDS, [2, 0, 1], random.Random(seed))
    freshen.apply(ours, reserve, moves)
    freshen.apply(theirs, reserve, json.loads(json.dumps(moves)))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    drawn = {value for one in reserve for value in one[0].tolist()}
    assert set(ours[0].tolist()) <= drawn
    assert not (ours[0] == before[0]).any(), "every element is another one"
    assert torch.equal(ours[1], reserve[2][1])
    assert torch.equal(ours[2], before[2])


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        (torch.randn(64, 64), torch.randn(64, 64), Kind.LOOSE),
        (torch.randn(32, 48).t(), torch.randn(32, 48).t(), Kind.LOOSE),
        (torch.randint(100, (512, 256)), torch.randint(100, (512, 256)), Kind.LOOSE),
        (torch.randn(32, 64)[:, ::2], torch.randn(32, 64)[:, ::2], Kind.DRAWN),
        (torch.randn(1, 64).expand(8, 64), torch.randn(1, 64).expand(8, 64), Kind.DRAWN),
        (torch.randint(100, (16, 24)), torch.randint(100, (16, 24)), Kind.DRAWN),
        (torch.randn(512).cumsum(0).abs().sort().values, torch.rand(512).sort().values, Kind.DRAWN),
        (torch.rand(64, 64).softmax(1), torch.rand(64, 64).softmax(1), Kind.DRAWN),
        (torch.randperm(1 << 17), torch.randperm(1 << 17), Kind.DRAWN),
        (torch.rand(64, 64) < 0.5, torch.rand(64, 64) < 0.5, Kind.DRAWN),
        (torch.randn(64, 64).tril(), torch.randn(64, 64).tril(), Kind.DRAWN),
        (torch.ones(64, 64), torch.ones(64, 64), Kind.FIXED),
        (torch.arange(64), torch.arange(64), Kind.FIXED),
        (torch.ones(8, 8, dtype=torch.bool), torch.ones(8, 8, dtype=torch.bool), Kind.FIXED),
    ],
)
def test_what_may_be_done_to_an_input_is_told_from_two_draws(
    one: torch.Tensor, other: torch.Tensor, kind: Kind
) -> None:
    assert freshen.kind_of(one, other) is kind


def reserve_of(kinds: list[Kind], make: Any, size: int) -> Reserve:
    return Reserve(kinds, make, lambda number, tensors: None, size)


def test_no_two_of_many_calls_have_the_same_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers and lengths as the generator draws them, floats rotated: a memo never hits."""
    monkeypatch.setattr("egg.evaluator.reference.reserve.DRAWING_SECONDS", 60.0)  # on a busy machine too
    ids = reserve_of([Kind.DRAWN], lambda: [torch.randint(1000, (4, 6))], 64)
    floats = reserve_of([Kind.LOOSE], lambda: [torch.randn(100)], 2)
    for reserve in (ids, floats):
        seen: set[tuple[float, ...]] = set()
        tensors = [t.clone() for t in reserve.draw()]
        for _ in range(4):
            for moves in reserve.for_calls([tensors], 40):
                reserve.follow(tensors, moves)
                values = tuple(tensors[0].flatten().tolist())
                assert values not in seen
                seen.add(values)


def test_a_small_tensor_has_other_values_as_long_as_there_are_any() -> None:
    """By chance alone two of so many calls would have the same ones in most runs."""
    reserve = reserve_of([Kind.LOOSE], lambda: [torch.randn(20)], 2)
    tensors = [t.clone() for t in reserve.draw()]
    seen: list[tuple[float, ...]] = []
    for moves in reserve.for_calls([tensors], 150):
        reserve.follow(tensors, moves)
        seen.append(tuple(tensors[0].tolist()))
    assert len(set(seen)) == len(seen)


def test_hardly_a_row_comes_again() -> None:
    """A kernel that keeps rows and their answers finds none of them at a later call."""
    reserve = reserve_of([Kind.LOOSE], lambda: [torch.randn(64, 64)], 2)
    tensors = [t.clone() for t in reserve.draw()]
    rows: list[tuple[float, ...]] = []
    for moves in reserve.for_calls([tensors], 150):
        reserve.follow(tensors, moves)
        rows += map(tuple, tensors[0].tolist())
    assert len(set(rows)) > 0.99 * len(rows)


def test_few_draws_are_kept_of_large_inputs_and_none_where_nothing_varies() -> None:
    assert how_many([Kind.LOOSE], 1 << 10) == 2
    assert how_many([Kind.DRAWN], 1 << 10) == 256
    assert how_many([Kind.DRAWN], 1 << 30) == 2
    assert how_many([Kind.LOOSE], 1 << 30) == 1
    assert how_many([Kind.FIXED], 1 << 10) == 0
