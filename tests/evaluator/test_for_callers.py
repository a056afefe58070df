"""What forward leaves for its callers, and what it does not."""

from __future__ import annotations

import pytest
import torch

from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.reference.for_callers import for_callers
from egg.evaluator.reference.reference import Reference
from egg.evaluator.task.program import Program

SOURCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))
{init}

    def forward(self, x):
{forward}


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return []
"""


def _asked(init: str, forward: str) -> list[str]:
    parts = {"init": init, "forward": forward}
    lines = {
        name: "\n".join(8 * " " + line for line in text.strip().splitlines()) for name, text in parts.items()
    }
    with Program.load(Task("small", SOURCE.format(**lines))) as program:
        return for_callers(Reference(program, Precision.MATCH, torch.device("cpu")))


@pytest.mark.parametrize(
    ("init", "forward", "names"),
    [
        ("self.steps = 0", "self.steps += 1\nreturn x * self.weight", ["steps"]),
        ("self.loss = None", "self.loss = self.weight.square().sum()\nreturn x * self.weight", ["loss"]),
        (
            "self.last, self.change = None, None",
            "if self.last is not None:\n    self.change = (x - self.last).norm()\nself.last = x\nreturn -x",
            ["last", "change"],
        ),
        (
            "self._last, self.change = None, None",
            "if self._last is not None:\n    self.change = (x - self._last).sum()\nself._last = x\nreturn -x",
            ["change"],
        ),
        (
            "self.register_buffer('cache', torch.randn(3, 4, 8), persistent=False)\nself.at = 2",
            "self.cache[self.at] = x\nreturn self.cache.sum(0)",
            ["cache"],
        ),
    ],
    ids=["count", "penalty", "second call", "behind a private one", "cache"],
)
def test_what_callers_could_miss_is_asked_for(init: str, forward: str, names: list[str]) -> None:
    assert _asked(init, forward) == names


@pytest.mark.parametrize(
    ("init", "forward"),
    [
        (
            "self.table = None",
            "if self.table is None:\n    self.table = torch.arange(8.0).cos()\nreturn x * self.table",
        ),
        (
            "self.register_buffer('mask', None, persistent=False)",
            "self.register_buffer('mask', torch.ones(4, 8).tril(), persistent=False)\nreturn x * self.mask",
        ),
        ("self.shape = None", "self.shape = tuple(x.shape)\nreturn x * self.weight"),
        (
            "self.packed = None",
            "if self.packed is None:\n    self.packed = self.weight * 2\nreturn x * self.packed",
        ),
        ("self.normed = None", "self.normed = self.weight / self.weight.norm()\nreturn x * self.normed"),
        (
            "self.register_buffer('normed', torch.ones(8), persistent=False)",
            "self.normed.copy_(self.weight / self.weight.norm())\nreturn x * self.normed",
        ),
        (
            "self.hidden = torch.zeros(8)",
            "self.hidden = torch.tanh(self.hidden + x.sum(0))\nreturn x * self.hidden",
        ),
        ("self.steps = 0", "self.steps += 1\nreturn x * min(1.0, self.steps / 100)"),
        (
            "self.linear = torch.nn.utils.weight_norm(nn.Linear(8, 8))",
            "return self.linear(x)",
        ),
        ("self.ready = False", "self.ready = True\nreturn x * self.weight"),
        ("self.at = None", "import time\nself.at = time.perf_counter()\nreturn x * self.weight"),
    ],
    ids=[
        "table",
        "mask",
        "shape",
        "packed",
        "normed",
        "normed in place",
        "hidden state",
        "warm-up",
        "weight norm",
        "flag",
        "clock",
    ],
)
def test_what_only_forward_uses_is_not(init: str, forward: str) -> None:
    assert _asked(init, forward) == []
