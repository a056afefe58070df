"""Forward and backward under grad mode: what requires a gradient, and what lies between the two."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from torch import nn

from egg.evaluator.task.gradient_ways import BETWEEN, PLAIN, SECOND, Leaves, Overwritten, Way
from egg.evaluator.task.gradients import differentiated


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((3,), 2.0))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * y * self.weight


class LastInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, holder):
        holder.x, ctx.holder = x, holder
        return x * x

    @staticmethod
    def backward(ctx, *gradients):
        return 2.0 * ctx.holder.x * gradients[0], None


class Forgetful(nn.Module):
    """Its backward reads the input of the last call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return LastInput.apply(x, self)


def inputs() -> list[torch.Tensor]:
    return [torch.arange(6.0).reshape(2, 3) + 1.0, torch.ones(2, 3)]


@pytest.mark.parametrize(
    ("way", "given"),
    [
        (PLAIN, {"weight", "input 0", "input 1"}),
        (Way(leaves=Leaves.PARAMETERS), {"weight"}),
        (Way(leaves=Leaves.INPUTS), {"input 0", "input 1"}),
        (Way(alone="input 1"), {"input 1"}),
        (Way(alone="weight"), {"weight"}),
    ],
)
def test_only_what_is_asked_for_gets_a_gradient(way: Way, given: set[str]):
    module = Scaled()
    found = differentiated(module, inputs(), 7, way=way)
    assert {name for name, value in found.gradients.items() if value is not None} == given
    assert module.weight.requires_grad, "as it was"


def test_a_call_between_forward_and_backward_shows_what_is_kept_on_the_module():
    x = inputs()[:1]
    alone, between = (
        differentiated(Forgetful(), x, 7, way=way).gradients["input 0"] for way in (PLAIN, BETWEEN)
    )
    assert alone is not None
    assert between is not None
    assert not torch.equal(alone, between)
    first, again = (differentiated(Scaled(), inputs(), 7, way=way).gradients for way in (PLAIN, BETWEEN))
    for name in ("weight", "input 0", "input 1"):
        torch.testing.assert_close(first[name], again[name], rtol=0, atol=0)


def test_what_forward_returns_comes_back_and_only_the_calls_are_recorded():
    entered: list[int] = []

    @contextmanager
    def around():
        entered.append(1)
        yield

    found = differentiated(Scaled(), inputs(), 7, around=around)
    [(path, output)] = found.outputs
    assert (path, output.requires_grad) == ("0", False)
    assert torch.equal(output, 2.0 * inputs()[0])
    assert len(entered) == 2


class Powers(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * x, x * x * x


@pytest.mark.parametrize(("output", "slope"), [(0, lambda x: 2 * x), (1, lambda x: 3 * x * x)])
def test_a_loss_may_read_one_output_alone(output, slope):
    x = torch.randn(4, 8)
    one, both = (
        differentiated(Powers(), [x], 7, way=way).gradients["input 0"] for way in (Way(output=output), PLAIN)
    )
    assert not torch.equal(one, both)
    ratio = one / slope(x)
    assert torch.allclose(ratio.bfloat16().float(), ratio, rtol=1e-5), "what came in was drawn in bfloat16"


def test_what_is_overwritten_between_shows_where_it_was_saved():
    x = torch.randn(4, 8)
    usual = differentiated(nn.Sigmoid(), [x], 7).gradients["input 0"]
    behind = differentiated(nn.Sigmoid(), [x], 7, way=Way(overwritten=Overwritten.INPUTS))
    assert torch.equal(behind.gradients["input 0"], usual), "a sigmoid saves its output"
    assert "inplace" in differentiated(nn.Sigmoid(), [x], 7, way=Way(overwritten=Overwritten.OUTPUTS)).error
    wrong = differentiated(Forgetful(), [x.clone()], 7, way=Way(overwritten=Overwritten.INPUTS))
    assert not torch.equal(
        wrong.gradients["input 0"], differentiated(Forgetful(), [x], 7).gradients["input 0"]
    )


def test_second_derivatives_are_found_and_their_lack_is():
    x = torch.randn(4, 8)
    found = differentiated(Powers(), [x], 7, way=SECOND)
    assert found.requires == (True, True, True)
    assert found.gradients["input 0"] is not None
    assert differentiated(nn.Flatten(), [x], 7, way=SECOND).requires == (), "a linear function has none"
