"""A product in fp16, both operands row-major."""

import torch
from torch import nn

size = 4096


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(size, size, dtype=torch.float16), torch.randn(size, size, dtype=torch.float16)]


def get_init_inputs():
    return []
