# policy: library_calls=forbid
"""A depthwise 3x3 convolution and a clamp, as in mobile networks."""

import torch
from torch import nn

batch = 32
channels = 256
size = 56


class Model(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size=3, padding=1, groups=channels)

    def forward(self, x):
        return torch.clamp(self.conv(x), 0.0, 6.0)


def get_inputs():
    return [torch.randn(batch, channels, size, size)]


def get_init_inputs():
    return [channels]
