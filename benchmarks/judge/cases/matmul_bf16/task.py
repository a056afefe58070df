# policy: precision=bf16 library_calls=forbid
"""A projection with a residual in bf16."""

import torch
from torch import nn

tokens = 8192
width = 4096


class Model(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.projection = nn.Linear(width, width)

    def forward(self, x):
        return x + self.projection(x)


def get_inputs():
    return [torch.randn(tokens, width)]


def get_init_inputs():
    return [width]
