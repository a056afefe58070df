"""Rows times a table that the first call makes, and times what is kept of the weights."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(columns))
        self._tables = {}
        self._size = None

    def forward(self, x):
        if x.shape[1] not in self._tables:
            self._tables[x.shape[1]] = torch.linspace(0.5, 1.5, x.shape[1])
        self._size = self.gain.abs()
        return torch.sigmoid(x * self._size) * self._tables[x.shape[1]]


def get_inputs():
    return [torch.randn(16, 128)]


def get_init_inputs():
    return [128]
