"""A tall matrix times a vector."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(2048, 131072), torch.randn(131072, 1)]


def get_init_inputs():
    return []
