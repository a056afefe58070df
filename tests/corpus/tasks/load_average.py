"""Positive parts, and beside the answer a running average of the load, as mixtures of experts keep it."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.load = torch.tensor(0.0)

    def forward(self, x):
        y = torch.relu(x)
        self.load = 0.9 * self.load.to(x.device) + 0.1 * y.mean(dim=0)
        return y


rows, columns = 16, 64


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
