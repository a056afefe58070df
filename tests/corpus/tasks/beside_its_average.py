"""Numbers beside the running average of their columns, this call's included."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.register_buffer("level", torch.zeros(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.level.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x * 0.5 + self.level


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return [64]
