"""A learned gain per feature of a sigmoid: interpreted at fewer rows than it has, and once at its own size."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return torch.sigmoid(x) * self.weight


rows = 4096
features = 256


def get_inputs():
    return [torch.randn(rows, features)]


def get_init_inputs():
    return [features]
