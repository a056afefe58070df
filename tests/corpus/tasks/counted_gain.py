"""Rows times a gain, in a module that counts its calls."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(features))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return torch.exp(0.1 * x) * self.gain


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return [64]
