"""Answers that no arithmetic makes: which they are, and that they must be equal; numbers and exponents."""

from __future__ import annotations

import pytest
import torch

from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.compare import copies
from egg.evaluator.compare.compare import compare
from egg.evaluator.reference import conditioning
from egg.evaluator.reference.moved_only import copied, moved_only
from egg.evaluator.reference.reference import Reference
from egg.evaluator.task.program import Program

ROWS = "torch.randn(8, 16), torch.randint(0, 8, (5,))"


def reference(forward: str, inputs: str = ROWS, init: str = "pass", arguments: str = "x, i") -> Reference:
    source = (
        "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n\nclass Model(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, {arguments}):\n        {forward}\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\ndef get_init_inputs():\n    return []\n"
    )
    return Reference(Program.load(Task("small", source)), Precision.MATCH, torch.device("cpu"))


@pytest.mark.parametrize(
    "forward",
    [
        "return x[i].flatten()",
        "return torch.cat([x.t(), x.t()]).bfloat16()",
        "return torch.where(x > 0.5, x, 0.0)",
        "return x[i].to(torch.float8_e4m3fn), x.half().to(torch.float8_e5m2)",
        "return x.topk(3).values, x.sort().indices",
        "return F.max_pool2d(x[None, None], 2)",
        "return F.pad(torch.relu(-x), (1, 1))",
        "y = torch.zeros_like(x)\n        y[1:] = x[:-1]\n        return y",
    ],
)
def test_what_is_moved_and_selected_is_no_arithmetic(forward: str) -> None:
    made = reference(forward)
    assert copied(made, made.case("one"), 0)


@pytest.mark.parametrize(
    "forward",
    [
        "return 2.0 * x",
        "return x[torch.softmax(x[:, :8], -1).argmax(-1)[i]]",
        "return torch.where(x.sum(1, keepdim=True) > 0, x, 0.0)",
        "return x.clone().index_put_((i,), x[i], accumulate=True)",
        "return torch.full((3,), x.amax().item() * 0.3)",
        "return (1000 * x).to(torch.float8_e4m3fn)",
        "return (x[i] / 2**-20).to(torch.float8_e4m3fn)",
        "return x.to(torch.float8_e5m2)",
        "return (i * (2**24 + 1)).float()",
        "y = x.clone()\n        y[0] = x.mean(0)\n        return y",
        "return torch.linspace(0, 1, 7) + 0 * x[0, :7]",
    ],
)
def test_what_is_computed_anywhere_is_arithmetic(forward: str) -> None:
    made = reference(forward)
    assert not copied(made, made.case("one"), 0)


def test_what_forward_changes_from_call_to_call_is_computed() -> None:
    init = "self.register_buffer('mean', torch.zeros(16))"
    keep = "before = self.mean.clone()\n        self.mean.lerp_(x.mean(0), 0.1)\n        return before, x[i]"
    made = reference(keep, init=init)
    case = made.case("one")
    assert not copied(made, case, 0)
    assert copied(made, case, 1)


def test_what_comes_out_of_a_delay_line_was_given() -> None:
    """Of what is only moved the buffers hold nothing else, whatever a call has put there before; of the two
    others one is computed, and one copied from it."""
    init = """self.register_buffer("line", torch.zeros(4, 16))
        self.register_buffer("peak", torch.zeros(16))
        self.register_buffer("mean", torch.zeros(16))
        self.register_buffer("last", torch.zeros(16))"""
    forward = """late = self.line[:2].clone()
        self.line.copy_(torch.cat((self.line[2:], x[:2])))
        self.peak.copy_(torch.maximum(self.peak, x.amax(0)))
        self.last.copy_(self.mean)
        self.mean.lerp_(x.mean(0), 0.1)
        return late, self.peak[i[:4]], self.last + 0, self.last.clone()"""
    made = reference(forward, init=init)
    assert moved_only(made) == {"line", "peak"}
    assert [copied(made, made.case("one"), position) for position in range(4)] == [True, True, False, False]


def test_copies_are_the_references_or_the_exact_ones() -> None:
    x = torch.randn(1000)
    rounded = x.bfloat16()
    assert not copies.compare([rounded, rounded, x.double()])
    assert not copies.compare([x, rounded.float(), x.double()])
    next_one = torch.nextafter(rounded, torch.tensor(torch.inf, dtype=torch.bfloat16))
    assert copies.compare([torch.where(x > 2.0, next_one, rounded), rounded, x.double()])


def test_zeros_may_have_either_sign_and_the_smallest_numbers_may_be_zeros() -> None:
    given = torch.tensor([0.0, 1e-40, torch.nan, torch.inf])
    answer = torch.tensor([-0.0, 0.0, torch.nan, torch.inf])
    assert not copies.compare([answer, given, given.double()])


def test_exponents_are_integers() -> None:
    powers = torch.randint(100, 140, (4000,), dtype=torch.uint8)
    exact = powers.view(torch.float8_e8m0fnu)
    lower = powers.clone()
    lower[::50] -= 1
    halved = lower.view(torch.float8_e8m0fnu)
    assert compare(exact, exact, exact, Precision.MATCH).passed
    assert not compare(halved, exact, exact, Precision.MATCH).passed
    assert not compare(halved, exact, exact, Precision.MATCH, crossed=[halved]).passed
    few = powers.clone()
    few[:3] -= 1
    one = few.view(torch.float8_e8m0fnu)
    assert compare(one, exact, exact, Precision.MATCH, crossed=[one]).passed
    assert not compare(one, exact, exact, Precision.MATCH, crossed=[exact]).passed


def test_no_number_is_the_neighbour_of_no_exponent() -> None:
    exact = torch.full((4000,), 254, dtype=torch.uint8)
    other = exact.clone()
    other[0] = 255
    got, powers = other.view(torch.float8_e8m0fnu), exact.view(torch.float8_e8m0fnu)
    assert not compare(got, powers, powers, Precision.MATCH, crossed=[got]).passed


def test_a_number_is_as_exact_as_the_tensor_it_was_read_from() -> None:
    made = reference("return x.square().mean().item() + 0.0 * i.sum().item()")
    case = made.case("one")
    assert conditioning.read_as(made, case) is torch.float32
    got, expected, exact = (torch.tensor(v, dtype=torch.float64) for v in (1.0 + 1e-6, 1.0 + 1e-8, 1.0))
    assert not compare(got, expected, exact, Precision.MATCH).passed
    assert compare(got, expected, exact, Precision.MATCH, computed_in=torch.float32).passed
    coarse = reference("return x.mean().bfloat16().item() + x.sum().item()")
    assert conditioning.read_as(coarse, coarse.case("one")) is torch.bfloat16
