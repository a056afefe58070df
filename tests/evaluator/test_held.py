"""State is read where a module keeps it, and equal infinities are alike."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from egg.evaluator.gates.moved import arrived
from egg.evaluator.worker.held import parameters_of, state_of


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
