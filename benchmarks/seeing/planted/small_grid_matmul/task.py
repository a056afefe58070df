"""A product with a small result and a long inner dimension, in bf16."""

import torch
from torch import nn

rows = 512
inner = 65536


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    a = torch.randn(rows, inner, dtype=torch.bfloat16)
    b = torch.randn(inner, rows, dtype=torch.bfloat16)
    return [a, b]


def get_init_inputs():
    return []
