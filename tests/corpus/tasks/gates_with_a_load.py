"""Shares of experts; the load of the last call is there behind a property."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, experts):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(experts))
        self._load = None

    @property
    def load(self):
        return self._load

    def forward(self, x):
        y = torch.sigmoid(x * self.gain)
        self._load = y.mean(0)
        return y


def get_inputs():
    return [torch.randn(16, 128)]


def get_init_inputs():
    return [128]
