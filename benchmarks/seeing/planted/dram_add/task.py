"""The sum of two long vectors."""

import torch
from torch import nn

length = 67108864


class Model(nn.Module):
    def forward(self, a, b):
        return a + b


def get_inputs():
    return [torch.randn(length), torch.randn(length)]


def get_init_inputs():
    return []
