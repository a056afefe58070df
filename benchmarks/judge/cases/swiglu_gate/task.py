# policy: library_calls=forbid
"""SwiGLU gating: the first half of the features, through SiLU, times the second half."""

import torch
from torch import nn
from torch.nn import functional as F

tokens = 8192
hidden = 4096


class Model(nn.Module):
    def forward(self, x):
        gate, up = x.chunk(2, dim=-1)
        return F.silu(gate) * up


def get_inputs():
    return [torch.randn(tokens, 2 * hidden)]


def get_init_inputs():
    return []
