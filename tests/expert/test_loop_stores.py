"""Rows that lie side by side in a result: a tile has as many of them as fill the sectors that it writes."""

from __future__ import annotations

import re

import pytest
import torch

from tests.expert import elsewhere

TURNED = "F.normalize(x.transpose(1, 2), dim=1).reshape(x.shape[0], -1)"
IN_ORDER = "F.normalize(x, dim=2).reshape(x.shape[0], -1)"


def rows(forward: str, dtype: str = "torch.float32", width: int = 512) -> int:
    """Of a tile, where ``B`` images have ``K`` rows of ``width``."""
    inputs = f"x = torch.randn(B, K, D, dtype={dtype})"
    text = elsewhere.written(elsewhere.program(f"return {forward}", inputs, "pass", B=2048, K=32, D=width))
    return int(re.findall(r"BLOCK_X = (\d+)", text)[0])


@pytest.mark.parametrize(("dtype", "wanted"), [("torch.float32", 16), ("torch.bfloat16", 32)])
def test_tiles_fill_sectors_where_a_result_turns(dtype: str, wanted: int) -> None:
    assert rows(TURNED, dtype, 256) == wanted
    assert rows(IN_ORDER, dtype, 256) < wanted


def test_right_at_other_sizes() -> None:
    source = elsewhere.program(f"return {TURNED}", "x = torch.randn(B, K, D)", "pass", B=2048, K=32, D=512)
    elsewhere.check(source, [], [torch.randn(3, 13, 40)])
