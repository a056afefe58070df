"""Rounds to the levels of a four-bit float, whose borders and scales (8-bit floats) are buffers."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("borders", torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]))
        self.register_buffer("levels", torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]))
        self.register_buffer("scales", (torch.rand(width) + 0.5).to(torch.float8_e4m3fn))

    def forward(self, x):
        return self.levels[torch.bucketize(x.abs(), self.borders)] * x.sign() * self.scales.float()


def get_inputs():
    return [2.0 * torch.randn(16, 64)]


def get_init_inputs():
    return [64]
