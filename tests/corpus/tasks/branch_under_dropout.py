"""A layer with a branch of small scale, and dropout."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features: int, scale: float):
        super().__init__()
        self.main = nn.Linear(features, features, bias=False)
        self.branch = nn.Linear(features, features, bias=False)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.main(x) + self.scale * self.branch(x)
        keep = torch.rand_like(h) > 0.1
        return h * keep / 0.9


def get_inputs():
    return [torch.randn(256, 64)]


def get_init_inputs():
    return [64, 1e-6]
