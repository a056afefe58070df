"""A long vector, doubled."""

import torch
from torch import nn

length = 67108864


class Model(nn.Module):
    def forward(self, x):
        return 2 * x


def get_inputs():
    return [torch.randn(length)]


def get_init_inputs():
    return []
