# policy: library_calls=forbid
"""A 3x3 convolution with bias and ReLU."""

import torch
from torch import nn
from torch.nn import functional as F

batch = 32
channels = 64
filters = 128
size = 56


class Model(nn.Module):
    def __init__(self, channels: int, filters: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel_size=3, padding=1)

    def forward(self, x):
        return F.relu(self.conv(x))


def get_inputs():
    return [torch.randn(batch, channels, size, size)]


def get_init_inputs():
    return [channels, filters]
