"""Tiny tasks, options for them, and a suite."""

from __future__ import annotations

from pathlib import Path

from egg.api.benching.options import BenchOptions
from egg.bench.suites import Suite
from egg.core.policy import Level
from egg.core.recording import use_of_recordings
from egg.core.settings import Settings
from egg.core.source import Task
from egg.engine.budgets import find_budget

ROOT = Path(__file__).resolve().parents[3]
RELU = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * {factor}

def get_inputs():
    return [torch.randn(24, 40)]

def get_init_inputs():
    return []
"""
PRODUCT = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(512, 512)

    def forward(self, x):
        return torch.softmax(self.linear(x), -1)

def get_inputs():
    return [torch.randn(2048, 512)]

def get_init_inputs():
    return []
"""
BROKEN = Task(
    "9_Broken", RELU.format(factor=1.0).replace("import torch\n", "import no_such_package\n", 1), 1, 9
)
SEVERAL = Task("8_Product", PRODUCT, 1, 8)
"""There are several ways to write it."""


def relu(number: int) -> Task:
    return Task(f"{number}_Relu", RELU.format(factor=float(number)), 1, number)


def suite(*tasks: Task) -> Suite:
    return Suite("tiny", tasks, "made by hand")


def options(
    level: Level = Level.FULL, *, device: str = "cpu", team: str = "expert", budget: str = "sketch"
) -> BenchOptions:
    """As they are once they are settled."""
    use = use_of_recordings(team, device)
    settings = Settings(team, find_budget(budget), device=device, target="H200", compiled=use)
    return BenchOptions(settings, level)
