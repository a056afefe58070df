"""A learned scale and shift per feature: y = x * weight + bias."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return x * self.weight + self.bias


rows = 16
features = 256


def get_inputs():
    return [torch.randn(rows, features)]


def get_init_inputs():
    return [features]
