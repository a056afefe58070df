"""Places of numbers among sorted ones, in files of kernels alone."""

from __future__ import annotations

import pytest
import torch

from egg.expert.graph import Node
from egg.expert.patterns.loops.triton.counted import counts
from tests.expert.elsewhere import check, normal, program, written

BOUNDS = "self.register_buffer('bounds', torch.linspace(-1.5, 1.5, 7))"
SEARCHES = {
    "among a few": "torch.bucketize(x, self.bounds)",
    "on the right": "torch.bucketize(x, self.bounds, right=True)",
    "as 32 bits": "torch.bucketize(x, self.bounds, out_int32=True).float() * 0.5",
    "one row for all": "torch.searchsorted(self.bounds, x, side='right')",
    "a row for each": "torch.searchsorted(y.sort(-1).values, x)",
    "documents of tokens": "torch.bucketize(torch.arange(x.shape[1]), y[0].abs().cumsum(0) * 4) * x.abs()",
}


@pytest.mark.parametrize("forward", SEARCHES.values(), ids=SEARCHES.keys())
def test_a_place_is_a_count(forward: str):
    source = program(
        f"return {forward}", "x = torch.randn(rows, n); y = torch.randn(rows, 9)", BOUNDS, "", rows=64, n=96
    )
    assert not any(name in written(source) for name in ("torch.bucketize(", "torch.searchsorted("))
    x = normal(9, 37)
    x[0, :3] = torch.tensor([-1.5, 1.5, float("nan")])
    check(source, [], [x, normal(9, 9)])


def test_a_search_among_many_stays_a_call():
    layers = "self.register_buffer('bounds', torch.linspace(-1.5, 1.5, 255))"
    source = program(
        "return torch.bucketize(x.tanh(), self.bounds)", "x = torch.randn(rows, 4096)", layers, rows=512
    )
    assert "torch.bucketize(" in written(source)


def test_exponents_of_two_are_computed_in_the_pass():
    """Scales of weights are often stored as exponents, in eight bits."""
    forward = "return torch.ldexp(x.view(rows, -1, 4), y.int().unsqueeze(-1) - 127).flatten(1) + 1"
    given = "x = torch.randn(rows, 32); y = torch.randint(120, 130, (rows, 8), dtype=torch.uint8)"
    source = program(forward.replace("rows", "x.shape[0]"), given, "self.none = 0", rows=64)
    assert "torch.ldexp(" not in written(source)
    check(source, [], [normal(9, 32), torch.randint(120, 130, (9, 8), dtype=torch.uint8)])


def test_places_that_are_chosen_by_places_are_looked_at_once():
    """A walk of 60 steps over a graph in rows: each step reads its node's row twice."""
    own = {
        f"node_{step}": Node("pointwise", (f"node_{step - 1}", f"node_{step - 1}"), (f"node_{step}",))
        for step in range(1, 60)
    }
    assert not counts(own, "node_59")
    own["node_0"] = Node("constant", (), ("node_0",), {"range": (0, 1)})
    assert counts(own, "node_59")
