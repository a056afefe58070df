"""Elements that a mask chooses: computed with, put back where it chose them, added up."""

from __future__ import annotations

import pytest

from egg.core.errors import TaskError
from egg.core.source import Task
from egg.expert.assemble import graph_of
from tests.expert.elsewhere import check, normal, program

MASKS = """
low, high = x.floor().long(), x.ceil().long()
low[(high > 0) * (low == high)] -= 1
high[(low < 3) * (low == high)] += 1
y = x.clone()
mask = y > 0.5
y[mask] = torch.tanh(x[mask]) * z[mask] + 2.0
y[:, w > 0] *= 2
rows = z.mean(1) > 0
y[rows] += z[rows] * w
part = x[mask]
part.mul_(0.5)
return low, high, y, part.mean(), F.mse_loss(x[mask], z[mask]), (w - z[rows]).sum()
"""
GIVEN = "x = torch.randn(rows, n) * 2; z = torch.randn(rows, n); w = torch.randn(n)"


def test_a_choice_by_a_mask_is_a_choice_between_whole_tensors():
    x = normal(9, 37) * 2
    x[:, :3] = x[:, :3].round()
    source = program(MASKS, GIVEN, "self.none = 0", "", rows=64, n=300)
    check(source, [], [x, normal(9, 37).flip(0), normal(37)])


def test_chosen_elements_are_a_copy():
    """What is written into the tensor afterwards does not change them."""
    lines = ("y = x.clone()", "mask = y > 0", "kept = y[mask]", "y += 1.0", "y[mask] = kept", "return y")
    forward = "\n".join(lines)
    source = program(forward, "x = torch.randn(rows, n)", "self.none = 0", "", rows=64, n=300)
    check(source, [], [normal(9, 37)])


def test_means_of_16_bits_are_summed_in_32():
    """Their sum is beyond the largest number of that type."""
    forward = "return x[x > 0].mean()"
    source = program(forward, "x = torch.randn(rows, n).half()", "self.none = 0", "", rows=64, n=300)
    check(source, [], [(normal(64, 64).abs() * 100 + 50).half()], digits=2e-3)


@pytest.mark.parametrize(
    "line",
    ["x[x > 0] = z[z > 0]", "x = x + z[z > 0].sort().values.sum()", "x = x * z[z > 0].shape[0]"],
)
def test_what_needs_their_number_is_refused(line: str):
    source = program(f"x = x.clone()\n{line}\nreturn x", GIVEN, "self.none = 0", "", rows=64, n=300)
    with pytest.raises(TaskError, match="mask"):
        graph_of(Task("masks", source))
