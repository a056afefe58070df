"""Group norm and SiLU."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(8, 64)

    def forward(self, x):
        return F.silu(self.norm(x))


def get_inputs():
    return [torch.randn(32, 64, 256, 256)]


def get_init_inputs():
    return []
