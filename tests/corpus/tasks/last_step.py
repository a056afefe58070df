"""Rows times a matrix; the module keeps the last rows, and what they gave."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features) / features**0.5)
        self.register_buffer("given", torch.zeros(8, features))
        self.register_buffer("made", torch.zeros(8, features))

    def forward(self, x):
        y = x @ self.weight
        self.given.copy_(x)
        self.made.copy_(y)
        return y


def get_inputs():
    return [torch.randn(8, 16)]


def get_init_inputs():
    return [16]
