# policy: precision=tf32 library_calls=forbid
"""A large projection under the TF32 policy."""

import torch
from torch import nn

tokens = 8192
width = 4096


class Model(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.projection = nn.Linear(width, width, bias=False)

    def forward(self, x):
        return self.projection(x)


def get_inputs():
    return [torch.randn(tokens, width)]


def get_init_inputs():
    return [width]
