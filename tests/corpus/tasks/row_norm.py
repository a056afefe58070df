import torch
import torch.nn as nn


class Model(nn.Module):
    """Each row divided by its root mean square."""

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + 1e-5)


rows = 16
cols = 96


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []
