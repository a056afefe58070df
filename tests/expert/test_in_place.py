"""Calls of PyTorch that put elements into a tensor: in place where nobody needs it as it was."""

from __future__ import annotations

import pytest
import torch

from tests.expert.elsewhere import check, normal, program, written

GIVEN = "x = torch.randn(rows, words).half(); at = torch.randint(0, words, (rows, 12))"
PENALTY = "y = x.float() * 0.5\nold = y.gather(1, at)\nz = y.scatter(1, at, old.tanh())\n"
VIEW = "v = y.view(x.shape[0], 5, -1)\n"
PLACES = torch.stack([torch.randperm(45, generator=torch.Generator().manual_seed(n))[:12] for n in range(9)])


@pytest.mark.parametrize(
    ("forward", "copies"),
    [
        (PENALTY + "return z.softmax(-1)", False),
        (PENALTY + "return z - y.flip(1)", True),
        (PENALTY + "return y, z.softmax(-1)", True),
        ("y = x.float()\n" + VIEW + "z = y.scatter(1, at, y[:, :12])\nreturn z.exp(), v.sin()", True),
        ("return x.scatter(1, at, x[:, :12] * 2).softmax(-1)", True),
    ],
    ids=["read before", "read again", "a result before", "a view read again", "an argument"],
)
def test_a_tensor_is_copied_where_somebody_needs_it(forward: str, copies: bool):
    source = program(forward, GIVEN, "self.none = 0", "", rows=64, words=500)
    assert ("torch.scatter(" in written(source)) is copies
    assert (".scatter_(" in written(source)) is not copies
    check(source, [], [normal(9, 45).half(), PLACES], digits=8e-3)
