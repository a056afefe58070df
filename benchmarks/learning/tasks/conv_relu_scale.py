"""A convolution, ReLU, a scale and a bias."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(64, 128, 3, padding=1)
        self.bias = nn.Parameter(torch.randn(128, 1, 1))

    def forward(self, x):
        return F.relu(self.conv(x)) * 2.0 + self.bias


def get_inputs():
    return [torch.randn(64, 64, 128, 128)]


def get_init_inputs():
    return []
