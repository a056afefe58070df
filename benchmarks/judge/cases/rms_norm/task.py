# policy: library_calls=forbid
"""RMS norm of wide rows."""

import torch
from torch import nn

tokens = 16384
hidden = 4096


class Model(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.RMSNorm(width, eps=1e-6)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(tokens, hidden)]


def get_init_inputs():
    return [hidden]
