# policy: library_calls=allow
"""A projection whose tail is worth a kernel: residual * sigmoid(x W^T + b), then a norm of the row."""

import torch
from torch import nn

tokens = 8192
hidden = 1024


class Model(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.gate = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x * torch.sigmoid(self.gate(x)))


def get_inputs():
    return [torch.randn(tokens, hidden)]


def get_init_inputs():
    return [hidden]
