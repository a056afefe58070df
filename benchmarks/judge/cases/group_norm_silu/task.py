# policy: library_calls=forbid
"""Group norm followed by SiLU, as in diffusion U-nets."""

import torch
from torch import nn
from torch.nn import functional as F

batch = 32
channels = 256
groups = 16
size = 64


class Model(nn.Module):
    def __init__(self, groups: int, channels: int):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return F.silu(self.norm(x))


def get_inputs():
    return [torch.randn(batch, channels, size, size)]


def get_init_inputs():
    return [groups, channels]
