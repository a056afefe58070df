"""A layer written out: a product and an offset."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, width))
        self.offset = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return x @ self.weight + self.offset


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return [64, 48]
