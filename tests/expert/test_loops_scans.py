"""Scans of few rows: programs that share them, and what they leave for each other."""

from __future__ import annotations

from typing import Any

import pytest

from egg.expert.parts import Unfit
from tests.expert.checking import MODES, check, everywhere, written
from tests.expert.programs import Program

SHARED: tuple[dict[str, Any], ...] = (
    {"mode": "split", "BLOCK_R": 16, "SPLITS": 4},
    {"mode": "split", "BLOCK_X": 4, "BLOCK_R": 16, "SPLITS": 2},
    {"mode": "split", "BLOCK_R": 16, "SPLITS": 8},
)
"""Stretches of several blocks, of one block, and some that are empty."""


def scan(p: Program, fn: str, dim: int, dtype: str = "float32", **attributes: Any) -> str:
    x = p.input("x", (p.size("batch", 2, 1), p.size("length", 100, 37), p.size("width", 5, 3)), dtype)
    x = p.pointwise("cos", x) if fn == "prod" else x
    return p.node("scan", (x,), p.shape(x), fn=fn, dim=dim, reverse=False, **attributes)


@pytest.mark.parametrize("fn", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_stretches_go_on_from_those_before(fn: str, dim: int) -> None:
    everywhere(lambda p: scan(p, fn, dim), SHARED, digits=1e-5)


def test_whole_numbers_and_numbers_that_are_amplified() -> None:
    everywhere(lambda p: scan(p, "sum", 1, "int64"), (*MODES, *SHARED))
    text = check(lambda p: scan(p, "sum", 1, exact=True), **SHARED[0])
    assert "tl.float64" in text


def test_places_in_a_capacity() -> None:
    """What routing asks of tokens by experts: places, how many there are, and what follows from both."""

    def program(p: Program) -> tuple[str, ...]:
        tokens = p.size("tokens", 1500, 1100)
        first, second = p.input("first", (tokens, 6), "int64"), p.input("second", (tokens, 6), "int64")
        places = p.node("scan", (second,), (tokens, 6), fn="sum", dim=0, reverse=False)
        taken = p.reduce("sum", first, (0,), keepdim=True)
        places = p.pointwise("add", places, taken)
        return places, p.pointwise("mul", places, second), taken

    text = check(program)
    assert "for start in range(low, high, BLOCK_R)" in text
    assert text.count("def ") == 2
    everywhere(program, SHARED)


def test_what_totals_do_not_say_is_not_shared() -> None:
    def of_itself(p: Program) -> str:
        x = scan(p, "sum", 1)
        return p.node("scan", (x,), p.shape(x), fn="max", dim=1, reverse=False)

    def reduced(p: Program) -> tuple[str, str]:
        x = scan(p, "sum", 1)
        return x, p.reduce("max", x, (1,))

    def backwards(p: Program) -> str:
        x = p.input("x", (p.size("length", 3000, 1500), 4))
        return p.node("scan", (x,), p.shape(x), fn="sum", dim=0, reverse=True)

    for program in (of_itself, reduced, backwards):
        with pytest.raises(Unfit):
            written(program, mode="split")
        assert "split" not in "".join(written(program)[1].kernels.values())
    check(backwards, digits=1e-4)


@pytest.mark.parametrize(
    ("shape", "dim", "shared"),
    [((2048, 16), 0, True), ((512, 16), 0, False), ((1 << 20,), 0, True), ((8, 4096), 1, False),
     ((4096, 1 << 14), 0, False)],
)  # fmt: skip
def test_long_rows_are_shared_where_they_are_few(shape: tuple[int, ...], dim: int, shared: bool) -> None:
    def program(p: Program) -> str:
        x = p.input("x", tuple(p.size(f"n{at}", side, 5 + at) for at, side in enumerate(shape)))
        return p.node("scan", (x,), p.shape(x), fn="sum", dim=dim, reverse=False)

    assert ("GROUP_SPLITS" in {c.name for c in written(program)[1].constants}) == shared


def test_lone_programs_have_many_loads_on_their_way() -> None:
    """Few columns that are too short to be shared: the mean of each expert's gate over the tokens."""

    def program(p: Program) -> str:
        return p.reduce("mean", p.input("x", (p.size("tokens", 2048, 900), 16)), (0,))

    constants = {c.name.removeprefix("GROUP_"): c.value for c in written(program)[1].constants}
    assert constants["BLOCK_X"] == 8
    assert int(constants["BLOCK_R"]) * 8 == 512 * int(constants["NUM_WARPS"])
    check(program)
