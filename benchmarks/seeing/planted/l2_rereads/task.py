"""How far a table lies above each of many thresholds: the mean excess over all of its entries."""

import torch
from torch import nn

thresholds = 1056
entries = 4194304


class Model(nn.Module):
    def forward(self, table, levels):
        return torch.stack([(table - level).clamp(min=0.0).mean() for level in levels])


def get_inputs():
    return [torch.randn(entries), torch.rand(thresholds)]


def get_init_inputs():
    return []
