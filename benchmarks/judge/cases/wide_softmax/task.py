# policy: library_calls=forbid
"""Softmax over wide rows with a temperature, as over a vocabulary."""

import torch
from torch import nn

rows = 2048
vocabulary = 32000


class Model(nn.Module):
    def __init__(self, temperature: float):
        super().__init__()
        self.temperature = temperature

    def forward(self, x):
        return torch.softmax(x / self.temperature, dim=-1)


def get_inputs():
    return [torch.randn(rows, vocabulary)]


def get_init_inputs():
    return [0.7]
