"""Two numbers in one tensor: a large energy, and a penalty a million times smaller."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, mean):
        return torch.stack([x.square().sum(), 0.002 * mean.square().mean()])


def get_inputs():
    return [torch.randn(64, 64), torch.randn(64, 32)]


def get_init_inputs():
    return []
