"""State is read where a module keeps it, and equal infinities are alike."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from egg.evaluator.gates.moved import arrived, scale_of, usual
from egg.evaluator.restrict.names import RestrictedError
from egg.evaluator.worker.held import parameters_of, parts_of, state_of


class Late(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        self.register_buffer("running", torch.zeros(3))
        self.register_buffer("scratch", torch.zeros(3), persistent=False)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        self.running.fill_(1.0)
        return super().state_dict(*args, **kwargs)


def test_state_is_not_asked_for() -> None:
    module = Late()
    assert state_of(module)["running"].eq(0).all()
    assert list(state_of(module)) == list(module.state_dict())
    assert list(parameters_of(module)) == [name for name, _ in module.named_parameters()]
    assert "scratch" in state_of(module, persistent=False)


def test_equal_infinities_are_alike() -> None:
    ours, before = torch.tensor([1.0, torch.inf, torch.nan]), torch.ones(3)
    assert arrived(ours.clone(), ours, before)
    assert not arrived(torch.tensor([1.0, -torch.inf, torch.nan]), ours, before)
    assert not arrived(torch.tensor([1.5, torch.inf, torch.nan]), ours, before)
    assert not arrived(torch.tensor([1.0, 5.0, torch.nan]), ours, before)


class Answering:
    """A file's own object, which has what ``nn.Module`` keeps."""

    def __init__(self) -> None:
        self._modules = self._parameters = self._buffers = self

    def items(self) -> list[object]:
        raise AssertionError("the file's code runs")

    def __len__(self) -> int:
        raise AssertionError("the file's code runs")


@pytest.mark.parametrize("slot", ["_buffers", "_parameters", "_modules", "_forward_hooks", "training"])
def test_nothing_of_the_files_is_asked_for_what_a_module_holds(slot: str) -> None:
    module = nn.Linear(2, 2)
    vars(module)[slot] = Answering()
    with pytest.raises(RestrictedError, match=r"nn\.Module did not put there"):
        list(parts_of(module))


@pytest.mark.parametrize("slot", ["_buffers", "_parameters", "_modules"])
def test_what_a_module_holds_is_what_its_slot_is_for(slot: str) -> None:
    module = nn.Linear(2, 2)
    vars(module)[slot]["more"] = Answering()
    with pytest.raises(RestrictedError, match=r"nn\.Module did not put there"):
        state_of(module)


def test_another_rounding_of_weights_arrives_and_a_small_channel_that_stands_still_does_not() -> None:
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(512, 576, generator=generator)
    weights -= weights.mean(1, keepdim=True)  # means that are nearly zero
    weights[7] *= 1e-4
    inputs = torch.rand(64, 576, generator=generator)

    def rounded(bits: torch.Tensor) -> torch.Tensor:
        return (bits & ~0x1FFF).view(torch.float32)

    def statistics(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        products = inputs.double() @ w.double().T
        return 0.1 * products.mean(0), 0.1 * products.var(0) + 0.9

    exact, _ = statistics(weights)
    ours, variance = statistics(rounded(weights.view(torch.int32)))  # towards zero
    theirs, _ = statistics(rounded(weights.view(torch.int32) + 0x1000))  # to the nearest
    before, errors = torch.zeros_like(ours), (ours - exact).abs()
    state = {"bn.running_mean": ours, "bn.running_var": variance - 0.9}
    assert not arrived(theirs, ours, before, errors=errors), "some channel is right by luck"
    ordinary = usual({"bn.running_mean": errors}, state)["bn.running_mean"]
    assert arrived(theirs, ours, before, errors=ordinary)
    still = theirs.clone()
    still[7] = 0.0
    assert not arrived(still, ours, before, errors=ordinary)
    assert scale_of("counts", {"counts": ours}) is None

    # A second norm behind a layer that the reference computes exactly, and the file as the others.
    state |= {"other.running_mean": exact, "other.running_var": variance - 0.9}
    errors_of_both = {"bn.running_mean": errors, "other.running_mean": torch.zeros_like(errors)}
    ordinary = usual(errors_of_both, state)["other.running_mean"]
    assert arrived(theirs, exact, before, errors=ordinary)
    still = theirs.clone()
    still[7] = 0.0
    assert not arrived(still, exact, before, errors=ordinary)
