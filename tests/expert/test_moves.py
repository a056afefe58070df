"""Moves go into a plan's text and come out the same; a recipe is what they make, one after the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.expert.moves import (
    Alone,
    BadMove,
    Grade,
    Move,
    Open,
    Recipe,
    Set,
    Without,
    change_text,
    moves_in,
    parsed,
)

words = st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True)
upper = st.from_regex(r"[A-Z][A-Z0-9_]{0,12}", fullmatch=True)
settings = st.one_of(st.integers(-(2**40), 2**40), st.booleans(), words)
moves = st.one_of(
    st.builds(Without, words, st.one_of(st.just(""), words)),
    st.builds(Alone, words, st.one_of(st.just(""), words)),
    st.builds(Grade, words, words),
    st.builds(Set, words, upper, settings),
    st.builds(Open, words, upper, st.lists(st.integers(0, 2**20), min_size=1, max_size=4).map(tuple)),
)


@given(st.text(alphabet=st.characters(exclude_characters="[]")), st.lists(moves, min_size=1, max_size=5))
def test_a_change_tells_its_moves(sentence: str, given: list[Move]) -> None:
    assert moves_in(change_text(sentence, given)) == tuple(given)


def test_a_change_by_somebody_else_has_none() -> None:
    assert moves_in("fuse the bias into the product") == ()


@pytest.mark.parametrize(
    "text", ["", "without", "grade product", "set a B", "fly away", "without a b", "open a B c"]
)
def test_what_is_no_move(text: str) -> None:
    with pytest.raises(BadMove):
        parsed(text)


def test_a_recipe_is_its_moves_in_order() -> None:
    recipe = Recipe().after(
        Without("convolution"),
        Grade("product", "tf32"),
        Grade("product", "fp32"),
        Set("linear", "BLOCK_M", 64),
        Set("linear", "BLOCK_N", 128),
        Open("linear", "BLOCK_K", (32, 128)),
        Alone("product"),
        Without("loops", "sum_1"),
        Alone("product", "linear_2"),
    )
    assert recipe.without == {"convolution"}
    assert recipe.alone == {"product"}
    assert recipe.grades == {"product": "fp32"}
    assert recipe.settings == {"linear": {"BLOCK_M": 64, "BLOCK_N": 128}}
    assert recipe.open == {"linear": {"BLOCK_K": (32, 128)}}
    assert recipe.left == {("loops", "sum_1")}
    assert recipe.apart == {("product", "linear_2")}
    assert recipe.closed().open == {}


def test_equal_recipes_are_one() -> None:
    one = Recipe().after(Set("a", "M", 1), Set("a", "N", 2), Grade("product", "fp32"))
    other = Recipe().after(Grade("product", "fp32"), Set("a", "N", 2), Set("a", "M", 1))
    assert len({one, other}) == 1
    assert hash(one) != hash(one.after(Set("a", "M", 2)))
