"""A large product in bf16, both operands row-major."""

import torch
from torch import nn

size = 8192


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(size, size, dtype=torch.bfloat16), torch.randn(size, size, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
