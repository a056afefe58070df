"""Every feature times the product of two gains."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.gain = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return x * (self.weight * self.gain)


def get_inputs():
    return [torch.randn(16, 64)]


def get_init_inputs():
    return [64]
