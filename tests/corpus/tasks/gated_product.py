import torch
import torch.nn as nn


class Model(nn.Module):
    """a * sigmoid(b)."""

    def forward(self, a, b):
        return a * torch.sigmoid(b)


rows = 32
cols = 96


def get_inputs():
    return [torch.randn(rows, cols), torch.randn(rows, cols)]


def get_init_inputs():
    return []
