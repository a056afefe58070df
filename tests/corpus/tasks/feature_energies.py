"""A batch norm that trains, on features in different units; the load of every feature is left for a loss."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("energy", torch.zeros(features))
        self.register_buffer("mean", torch.zeros(features))
        self.load = None

    def forward(self, x):
        self.load = x.square().mean(dim=0)
        self.energy.mul_(0.9).add_(0.1 * self.load)
        self.mean.mul_(0.9).add_(0.1 * x.mean(dim=0))
        return x * torch.rsqrt(x.var(dim=0, unbiased=False) + 1e-12)


rows, features = 512, 16


def get_inputs():
    return [torch.randn(rows, features) * torch.logspace(-3, 0, features)]


def get_init_inputs():
    return [features]
