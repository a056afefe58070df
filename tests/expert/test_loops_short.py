"""Many short sums with few elements behind them share tiles, at every size that the file claims."""

from __future__ import annotations

import pytest
import torch

from tests.expert import elsewhere

MANY = "x = torch.randn(b, 8, 3)"
FORWARDS = {
    "sum": ("return (x * 2 + 1).sum(1)", MANY),
    "extreme": ("return x.amax(1) - x.amin(1)", MANY),
    "softmax": ("return torch.softmax(x, 1)", MANY),
    "norm": ("return (x - x.mean(1, keepdim=True)) * torch.rsqrt(x.var(1, keepdim=True) + 1e-5)", MANY),
    "scan": ("return x.cumsum(1)", MANY),
    "place": ("return x.argmax(1)", MANY),
    "through an index": ("return (self.t[(x[..., 0] * 3).long().abs() % 50] * x[..., :2]).sum(1)", MANY),
}


@pytest.mark.parametrize("name", FORWARDS)
def test_many_short_rows_share_tiles(name: str) -> None:
    forward, inputs = FORWARDS[name]
    layers = "self.t = nn.Parameter(torch.randn(50, 2))" if "self.t" in forward else "pass"
    source = elsewhere.program(forward, inputs, layers, "", b=20000)
    text = elsewhere.written(source)
    assert "outer = " not in text, "a program for each of the rows before the reduced dimension"
    for rows in (1, 37, 200):
        elsewhere.check(source, [], [torch.randn(rows, 8, 3)])
