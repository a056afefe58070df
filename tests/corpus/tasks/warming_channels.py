"""Waves whose channels warm up, each by a count of steps of its own, in floats as optimizers keep it."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.register_buffer("steps", torch.zeros(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps.add_(1.0)
        return torch.sin(x) * (1.0 - 0.5**self.steps)


def get_inputs():
    return [torch.randn(16, 128)]


def get_init_inputs():
    return [128]
