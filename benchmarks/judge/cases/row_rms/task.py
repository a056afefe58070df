# policy: library_calls=forbid
"""Root mean square of every row."""

import torch
from torch import nn

rows = 16384
columns = 8192


class Model(nn.Module):
    def forward(self, x):
        return x.square().mean(dim=1).sqrt()


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
