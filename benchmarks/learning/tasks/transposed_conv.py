"""A strided transposed convolution and a clamp."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose2d(64, 64, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        return torch.clamp(self.conv(x) + 1.0, 0.0, 2.0)


def get_inputs():
    return [torch.randn(32, 64, 128, 128)]


def get_init_inputs():
    return []
