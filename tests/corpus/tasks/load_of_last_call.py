"""Positive parts, and beside the answer the load of the last call, as mixtures of experts keep it."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.load = None

    def forward(self, x):
        y = torch.relu(x)
        self.load = y.mean(dim=0)
        return y


rows = 16
columns = 128


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
