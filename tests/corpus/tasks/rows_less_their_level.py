"""So many rows that they are not interpreted first, less a running mean of their columns."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("level", torch.zeros(features))

    def forward(self, x):
        self.level.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x - self.level


rows = 8192
features = 64


def get_inputs():
    return [torch.rand(rows, features)]


def get_init_inputs():
    return [features]
