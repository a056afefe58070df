"""Gated features, some in another unit; what is kept is the sum of their squares."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("squares", torch.zeros(width))

    def forward(self, x):
        y = torch.nn.functional.silu(x)
        self.squares += y.square().sum(0)
        return y


def get_inputs():
    x = torch.randn(64, 128)
    x[:, ::16] *= 1000.0
    return [x]


def get_init_inputs():
    return [128]
