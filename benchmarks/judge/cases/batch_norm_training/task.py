# policy: library_calls=forbid
"""Batch norm in training mode: statistics of the batch, running statistics updated."""

import torch
from torch import nn

batch = 64
channels = 128
size = 56


class Model(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(batch, channels, size, size)]


def get_init_inputs():
    return [channels]
