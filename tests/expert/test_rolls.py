"""Tensors that are rolled along several dimensions (shifted windows) are read where they lie, in one pass."""

from __future__ import annotations

import pytest
import torch

from tests.expert import elsewhere

CASES = {
    "two dimensions": "return torch.relu(torch.roll(x, (-3, -2), (1, 2))).reshape(B * H, W, 4)",
    "three dimensions": "return torch.roll(x, (-1, 2, 1), (1, 2, 3)) * 2 + x",
    "one dimension twice": "return torch.roll(x, (1, 2, -5), (2, 2, 1))",
    "all elements": "return torch.roll(x, 7) - x",
}


def source(name: str) -> str:
    return elsewhere.program(CASES[name], "x = torch.randn(B, H, W, 4)", "pass", B=8, H=56, W=48)


@pytest.mark.parametrize("name", CASES)
def test_right_in_one_pass(name: str) -> None:
    text = elsewhere.written(source(name))
    assert text.count("](\n") == 1, text
    assert "torch.roll(" not in text
    assert "torch.cat(" not in text
    elsewhere.check(source(name), [], [torch.randn(8, 56, 48, 4)])
