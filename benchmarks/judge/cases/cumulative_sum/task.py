# policy: library_calls=forbid
"""Running totals of long rows."""

import torch
from torch import nn

rows = 8192
columns = 8192


class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=1)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
