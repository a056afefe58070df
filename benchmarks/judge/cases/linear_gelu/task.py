# policy: library_calls=forbid
"""The widening half of a feed-forward block: gelu(x W^T + b)."""

import torch
from torch import nn
from torch.nn import functional as F

tokens = 4096
hidden = 1024
wide = 4096


class Model(nn.Module):
    def __init__(self, hidden: int, wide: int):
        super().__init__()
        self.up = nn.Linear(hidden, wide)

    def forward(self, x):
        return F.gelu(self.up(x))


def get_inputs():
    return [torch.randn(tokens, hidden)]


def get_init_inputs():
    return [hidden, wide]
