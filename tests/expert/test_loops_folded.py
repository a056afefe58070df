"""Threads that join what they load before they keep it: columns of a tile, and chunks of a long row."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.expert import harness
from tests.expert.checking import check, written
from tests.expert.programs import Program, close, evaluate


def columns(p: Program, fn: str) -> str:
    sizes = p.size("batch", 2, 3), p.size("length", 50, 33), p.size("width", 70, 41)
    return p.reduce(fn, p.input("x", sizes), (1,))


@pytest.mark.parametrize("fn", ["sum", "max", "norm", "any"])
def test_a_column_is_joined_by_its_thread(fn: str) -> None:
    modes: list[dict[str, Any]] = [{"mode": "looped"}, {"mode": "split", "SPLITS": 4, "BLOCK_R": 4}]
    for mode in modes:
        text = check(lambda p: columns(p, fn), **mode)
        assert "tl.full([BLOCK_X, 1]" in text


def test_a_finishing_kernel_has_rows_of_its_own() -> None:
    _, part = written(lambda p: columns(p, "sum"), mode="split", SPLITS=4)
    constants = {c.name: c.value for c in part.constants}
    assert {"GROUP_BLOCK_X", "GROUP_FINISH_X", "GROUP_SPLITS"} <= set(constants)
    assert "BLOCK_X=GROUP_FINISH_X" in "\n".join(part.call)


def test_what_lies_along_memory_lies_along_lanes() -> None:
    def transposed(p: Program) -> str:
        x = p.input("x", (p.size("width", 300, 41), p.size("length", 50, 33)), order=(1, 0))
        return p.pointwise("relu", p.reduce("sum", x, (1,)))

    text = check(transposed, mode="looped")
    assert "tl.full([BLOCK_X, 1]" in text
    assert check(transposed, mode="split", SPLITS=2, BLOCK_R=8).count("tl.store") == 2
    channels_last = check(lambda p: p.softmax(p.input("x", (3, 70, 9), order=(0, 2, 1)), 2), mode="looped")
    assert "col = (col_block" in channels_last


@pytest.mark.parametrize("fn", ["softmax", "logsumexp", "max", "sum"])
def test_chunks_of_a_long_row_share_a_state(fn: str) -> None:
    def program(p: Program) -> str:
        x = p.input("x", (p.size("rows", 3, 2), p.size("width", 5000, 1500)))
        return p.softmax(x, 1) if fn == "softmax" else p.reduce(fn, x, (1,))

    modes: list[dict[str, Any]] = [{"mode": "looped"}, {"mode": "split", "SPLITS": 2}]
    for mode in modes:
        assert "tl.reshape" in check(program, digits=1e-5, **mode)
    assert "tl.reshape" not in check(program, digits=1e-5, mode="looped", BLOCK_R=128)


@pytest.mark.parametrize(("dtype", "per_warp"), [("float32", 128), ("bfloat16", 256), ("int64", 64)])
def test_chunks_are_as_wide_as_what_all_threads_load_at_once(dtype: str, per_warp: int) -> None:
    """Also where a sweep turns the warps, or makes blocks shorter than that."""

    def program(p: Program) -> str:
        return p.reduce("max", p.input("x", (p.size("rows", 3, 2), p.size("width", 5000, 1500)), dtype), (1,))

    graph, part = written(program, mode="looped")
    assert f"LANES=min(GROUP_BLOCK_R, {per_warp} * GROUP_NUM_WARPS)" in "\n".join(part.call)
    x = torch.randn(3, 5000).mul(100).to(getattr(torch, dtype))
    for turned in ({}, {"GROUP_NUM_WARPS": 4}, {"GROUP_NUM_WARPS": 8, "GROUP_BLOCK_R": 256}):
        constants = tuple(replace(c, value=turned.get(c.name, c.value)) for c in part.constants)
        (got,) = harness.run(graph, [replace(part, constants=constants)], [x])
        assert torch.equal(got, x.amax(1))


def test_a_narrow_operand_along_the_row_makes_chunks_wider() -> None:
    def program(p: Program) -> str:
        width = p.size("width", 5000, 1500)
        x, mask = p.input("x", (p.size("rows", 3, 2), width)), p.input("mask", (width,), "bfloat16")
        return p.reduce("sum", p.pointwise("mul", x, mask), (1,))

    _, part = written(program, mode="looped")
    assert "256 * GROUP_NUM_WARPS" in "\n".join(part.call)


def test_long_rows_of_half_the_width_have_blocks_of_as_many_bytes() -> None:
    def block(dtype: str, fn: str) -> int:
        def program(p: Program) -> str:
            x = p.input("x", (p.size("rows", 512, 2), p.size("width", 65536, 45)), dtype)
            return p.reduce(fn, x, (1,))

        return {c.name: int(c.value) for c in written(program)[1].constants}["GROUP_BLOCK_R"]

    assert block("bfloat16", "logsumexp") == 2 * block("float32", "logsumexp")
    assert block("bfloat16", "var") == block("float32", "var")


def test_where_arithmetic_takes_the_time_threads_have_few_elements() -> None:
    def loss(p: Program, *functions: str, width: int = 2**20) -> str:
        x = p.input("x", (p.size("rows", 4, 2), p.size("width", width, 45)), "float16")
        y = p.pointwise("cast", x, dtype="float32")
        each = [p.pointwise(fn, y, dtype="float32") for fn in functions]
        total = each[0]
        for other in each[1:]:
            total = p.pointwise("mul", total, other, dtype="float32")
        return p.reduce("sum", total, (1,))

    def block(*functions: str) -> int:
        constants = written(lambda p: loss(p, *functions))[1].constants
        return {c.name: int(c.value) for c in constants}["GROUP_BLOCK_R"]

    heavy = "sigmoid", "exp", "tanh"
    assert block("sigmoid") == 8192
    assert block(*heavy) == 1024
    check(lambda p: loss(p, *heavy, width=20000))


def test_chunks_without_anything_finite() -> None:
    graph, part = written(lambda p: p.reduce("logsumexp", p.input("x", (4, 3000)), (1,)), mode="looped")
    x = torch.randn(4, 3000)
    x[1], x[2, :2500], x[3, 17] = -math.inf, -math.inf, math.inf
    (want,) = evaluate(graph, [x], {})
    close(harness.run(graph, [part], [x])[0], want, "float32", 1e-5)


@pytest.mark.parametrize("mode", [{"BLOCK_R": 16}, {"BLOCK_X": 2, "BLOCK_R": 16}])
def test_states_of_shared_rows_are_joined_and_applied_by_kernels_of_their_own(mode: dict[str, Any]) -> None:
    def softmax(p: Program) -> tuple[str, str]:
        x = p.input("x", (p.size("rows", 3, 5), p.size("width", 700, 45)))
        return p.softmax(x, 1), p.reduce("max", x, (1,))

    def divided(p: Program) -> str:
        x = p.input("x", (p.size("rows", 3, 5), p.size("width", 700, 45)))
        return p.pointwise("div", x, p.reduce("norm", x, (0, 1), keepdim=True))

    text = check(softmax, mode="split", SPLITS=4, apart=True, **mode)
    assert "join_kernel" in text
    assert "tl.num_programs(0) - 1 - tl.program_id(0)" in text
    if "BLOCK_X" not in mode:
        check(divided, mode="split", SPLITS=4, apart=True, **mode)


def test_a_very_long_row_is_shared_by_waves_of_programs() -> None:
    def divided(p: Program) -> str:
        x = p.input("x", (p.size("rows", 2**14, 3), p.size("width", 2**16, 45)))
        return p.pointwise("div", x, p.reduce("norm", x, (0, 1), keepdim=True))

    _, part = written(divided)
    assert {c.name: c.value for c in part.constants}["GROUP_SPLITS"] == 4096
    assert [name.removeprefix("group_") for name in part.kernels] == [
        "parts_kernel", "join_kernel", "apply_kernel",
    ]  # fmt: skip


def test_columns_of_rows_that_are_not_aligned_have_a_state_per_lane() -> None:
    def sums(width: int) -> dict[str, Any]:
        def build(p: Program) -> str:
            x = p.input(
                "x", (p.size("batch", 128, 2), p.size("length", 4096, 33), p.size("width", width, 41))
            )
            return p.reduce("sum", x, (1,))

        return {c.name: c.value for c in written(build)[1].constants}

    assert sums(4095) == {"GROUP_BLOCK_X": 64, "GROUP_BLOCK_R": 32, "GROUP_NUM_WARPS": 4}
    assert sums(4096)["GROUP_NUM_WARPS"] == 2


@pytest.mark.parametrize("mode", ["resident", "looped"])
def test_sums_for_exponentials_are_carried_in_double(mode: str) -> None:
    def program(p: Program) -> str:
        x = p.input("x", (p.size("rows", 5, 3), p.size("width", 300, 45)))
        sums = p.node("scan", (x,), p.shape(x), fn="sum", dim=1, exact=True)
        return p.node("pointwise", (sums,), p.shape(x), fn="exp", scalars=(), exact=True)

    more = {"BLOCK_R": 16} if mode == "looped" else {}
    text = check(program, digits=2e-5, mode=mode, **more)
    assert "tl.float64" in text
    assert "libdevice.exp" in text


def test_a_number_is_added_up_in_double_as_well() -> None:
    def program(p: Program) -> str:
        x = p.input("x", (p.size("rows", 5, 3), p.size("width", 300, 45)))
        number = p.node("constant", (), p.shape(x), fill=0.25)
        sums = p.node("scan", (number,), p.shape(x), fn="sum", dim=1, exact=True)
        return p.pointwise("mul", x, p.node("pointwise", (sums,), p.shape(x), fn="exp", scalars=()))

    check(program, digits=2e-5)
