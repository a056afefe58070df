"""Many small products in fp16: 64x64 by 64x64."""

import torch
from torch import nn

batch = 32768
size = 64


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    a = torch.randn(batch, size, size, dtype=torch.float16)
    b = torch.randn(batch, size, size, dtype=torch.float16)
    return [a, b]


def get_init_inputs():
    return []
