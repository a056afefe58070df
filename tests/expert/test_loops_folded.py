"""Threads that join what they load before they keep it: columns of a tile, and chunks of a long row."""

from __future__ import annotations

import math
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


def test_chunks_without_anything_finite() -> None:
    graph, part = written(lambda p: p.reduce("logsumexp", p.input("x", (4, 3000)), (1,)), mode="looped")
    x = torch.randn(4, 3000)
    x[1], x[2, :2500], x[3, 17] = -math.inf, -math.inf, math.inf
    (want,) = evaluate(graph, [x], {})
    close(harness.run(graph, [part], [x])[0], want, "float32", 1e-5)
