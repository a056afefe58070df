"""Numbers that a program makes in ``forward``, and layers whose weight is computed there."""

from __future__ import annotations

import pytest
import torch

from egg.core.evaluation import Accepted
from egg.core.source import Task
from tests.conftest import JudgeFunction
from tests.expert.elsewhere import check, normal, program, written

PAIRS = program(
    """
low = torch.tensor([i for i in range(26) for j in range(i)])
other = torch.tensor([j for i in range(26) for j in range(i)], device=x.device)
weight = torch.tensor([[0.5 * i + j for j in range(20)] for i in range(20)])
return torch.relu(torch.bmm(x, x.transpose(1, 2))[:, low, other]), x[:, :20, :20] * weight
""",
    "x = torch.randn(batch_size, 26, 32)",
    batch_size=16,
)
NORMED = program(
    "return torch.relu(self.conv(x))",
    "x = torch.randn(batch_size, c, length)",
    "self.conv = torch.nn.utils.weight_norm(nn.Conv1d(c, out, 3, padding=1){})",
    "c, out",
    batch_size=8,
    c=32,
    out=64,
    length=256,
)


def test_many_numbers_are_made_once_for_a_device():
    text = written(PAIRS)
    assert text.count("self.made_once(") == 3
    assert "functools" not in text
    assert "torch.tensor(" not in text[text.index("class ModelNew") :]
    check(PAIRS, [], [normal(3, 26, 32)])


def test_the_judge_accepts_a_module_that_keeps_its_numbers(judged: JudgeFunction):
    evaluation = judged(Task("pairs", PAIRS), written(PAIRS), target="H200")
    assert isinstance(evaluation.verdict, Accepted), evaluation.verdict


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_lengths_of_many_weights_come_from_one_function():
    layer = "torch.nn.utils.weight_norm(nn.Conv1d(c, c, 3, padding=1))"
    source = program(
        "for conv in self.convs:\n    x = torch.relu(conv(x))\nreturn x",
        "x = torch.randn(batch_size, c, length)",
        f"self.convs = nn.ModuleList([{layer} for _ in range(4)])",
        "c",
        batch_size=8,
        c=64,
        length=1024,
    )
    assert written(source).count("norm_kernel[") == 1
    check(source, [5], [normal(2, 5, 9)], digits=2e-3)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("dim", ["", ", dim=1", ", dim=None"])
def test_a_weight_is_normed_as_the_layer_does_it(dim):
    check(NORMED.format(dim), [5, 6], [normal(2, 5, 9)])


PARAMETRIZED = NORMED.format("").replace("nn.utils.weight_norm", "nn.utils.parametrizations.weight_norm")


def test_a_weight_that_a_parametrization_computes():
    check(PARAMETRIZED, [5, 6], [normal(2, 5, 9)])


def test_the_judge_accepts_a_weight_that_a_parametrization_computes(judged: JudgeFunction):
    evaluation = judged(Task("normed", PARAMETRIZED), written(PARAMETRIZED), target="H200")
    assert isinstance(evaluation.verdict, Accepted), evaluation.verdict


def test_a_spectrum_is_cut_where_the_program_cuts_it():
    """The operator has other arguments than the function, which pads by itself."""
    source = program(
        "spectrum = torch.stft(x, 64, 16, window=self.window, return_complex=True)\n"
        "return (spectrum.abs() ** 2 + 1.0).log()",
        "x = torch.randn(batch_size, length)",
        "self.register_buffer('window', torch.hann_window(64))",
        batch_size=4,
        length=1024,
    )
    check(source, [], [normal(3, 1024)])


def test_many_ranges_come_from_one_function_on_the_device_of_the_input():
    source = program(
        "bags = [bag(x[at]) for at, bag in enumerate(self.bags)]\nreturn torch.cat(bags, dim=1)",
        "x = torch.randint(0, rows, (5, batch_size, 8))",
        "self.bags = nn.ModuleList([nn.EmbeddingBag(rows, 32, mode='sum') for _ in range(5)])",
        "rows",
        batch_size=512,
        rows=1000,
    )
    check(source, [10], [torch.arange(5 * 3 * 8).view(5, 3, 8) % 10])


def test_numbers_take_the_dtype_of_the_tensor_that_makes_them():
    source = program(
        "zero = x.new_tensor(0)\nweight = x.new_tensor([0.5, 2.0])\n"
        "return torch.where(x > zero, x, zero) * weight",
        "x = torch.randn(batch_size, 2)",
        batch_size=300,
    )
    check(source, [], [normal(7, 2)])


def test_a_size_that_is_made_a_tensor_is_an_element_like_any_other():
    """Kernels hold some sizes as constants, which have no dtype to be cast from."""
    forward = "return torch.matmul(x, y) / torch.sqrt(torch.tensor(x.shape[2]).float())"
    source = program(
        forward, "x = torch.randn(rows, 24, depth); y = torch.randn(rows, depth, 40)", rows=8, depth=64
    )
    check(source, [], [normal(3, 24, 32), normal(3, 32, 40)])
