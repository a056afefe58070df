"""Channels that were ever loud pass; the others are damped."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.register_buffer("loud", torch.zeros(channels, dtype=torch.bool))

    def forward(self, x):
        self.loud |= (x > 2.0).any(0)
        return torch.where(self.loud, x, 0.5 * x)


def get_inputs():
    return [torch.randn(16, 32)]


def get_init_inputs():
    return [32]
