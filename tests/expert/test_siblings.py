"""Passes that read the same tensors and need nothing of each other share a kernel."""

from __future__ import annotations

import pytest

from egg.core.source import Task
from tests.expert.captured import program
from tests.expert.test_reading import run_and_compare, written

SIGNS = program(
    "u = m.mul(0.9).add(g, alpha=0.1).sign(); return p.mul(0.99).add(u, alpha=-0.01), m.lerp(g, 0.01)",
    ", ".join(["torch.randn(rows, 64)"] * 3),
    knobs="rows = 40",
    arguments="p, g, m",
)
"""New weights and a new momentum."""
LOSSES = program(
    "s, t = x.div(2).log_softmax(-1), y.div(2).log_softmax(-1); kl = (t.exp() * (t - s)).sum(-1); "
    "return kl, F.cross_entropy(x, z, reduction='none')",
    "torch.randn(rows, 60), torch.randn(rows, 60), torch.arange(rows) % 60",
    knobs="rows = 40",
    arguments="x, y, z",
)
"""Two losses of the same logits."""
PLACES = program(
    "x % 7 + 1, x // 7", "torch.arange(rows * 50).reshape(rows, 50)", knobs="rows = 9", arguments="x"
)
SLICES = program(
    "d = y @ self.w; return tuple(x + d * (a + b) for a, b in zip(self.shares, z))",
    "torch.randn(rows, 64), torch.randn(rows, 64), torch.randn(5, rows, 64)",
    "self.w, self.shares = nn.Parameter(torch.rand(64, 64)), nn.Parameter(torch.rand(5, 64))",
    "rows = 40",
    "x, y, z",
)
"""Mixtures of the same two tensors with slices of a third, of which each pass reads a fifth."""


@pytest.mark.parametrize("task", [SIGNS, LOSSES, PLACES], ids=["signs", "losses", "places"])
def test_what_reads_the_same_is_one_kernel(task: Task) -> None:
    assert len(written(task).structure.groups) == 1
    run_and_compare(task)


def test_slices_count_by_what_is_read_of_them() -> None:
    assert [group.pattern for group in written(SLICES).structure.groups] == ["product", "loops"]
    run_and_compare(SLICES)


OTHERS = {
    "sums along both dimensions": "x.sum(0), x.sum(1)",
    "other halves": "x[:, :32].exp(), x[:, 32:].sin()",
    "one before the other": "a = x.exp(); return a, (x + (a @ self.w)).tanh()",
    "a small tensor in common": "x * b, y.mul(3) + b",
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_reads_other_elements_stays_apart(name: str) -> None:
    task = program(
        OTHERS[name],
        "torch.randn(rows, 64), torch.randn(2 * rows, 64), torch.randn(64)",
        "self.w = nn.Parameter(torch.rand(64, 64))",
        "rows = 40",
        "x, y, b",
    )
    assert len(written(task).structure.groups) > 1
