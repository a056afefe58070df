"""Rows and what was left of the last call: the positive part of its mean."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.register_buffer("last", torch.zeros(columns))

    def forward(self, x):
        y = x + 0.5 * self.last
        self.last.copy_(torch.relu(x.mean(0)))
        return y


def get_inputs():
    return [torch.randn(32, 128)]


def get_init_inputs():
    return [128]
