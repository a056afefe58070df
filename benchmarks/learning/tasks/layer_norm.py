"""Layer norm over the last dimension."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4096)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(16384, 4096)]


def get_init_inputs():
    return []
