"""Sizes that operators round: a coincidence at even sizes, or at odd ones, is not taken for a rule."""

from __future__ import annotations

import pytest

from egg.core.source import Task
from egg.expert.assemble import graph_of

PROGRAM = """
import torch
import torch.nn as nn

rows = {rows}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3, stride=2, padding=1, bias=False)

    def forward(self, x, y):
        x = self.conv(torch.maximum(x, y)).sum(dim=(0, 1, 3))
        return torch.cat([x, x], dim=0)

def get_inputs():
    return [torch.randn(5, 3, rows, 5), torch.randn(rows, 5)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("rows", [2, 4, 7])
def test_twice_a_rounded_half_is_not_the_whole(rows: int) -> None:
    graph = graph_of(Task("rounded", PROGRAM.format(rows=rows)))
    result = graph.value(graph.nodes[-1].outputs[0]).shape[0]
    height = next(n for n, text in graph.symbols.items() if text == "x.shape[2]")
    assert result.code() != height
    assert result.code() in ("conv_height * 2", "2 * conv_height")
