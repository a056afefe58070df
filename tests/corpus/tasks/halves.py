import torch
import torch.nn as nn


class Model(nn.Module):
    """Each row of one half, scaled to a sum of one, times the other half: both are parts of one tensor."""

    def forward(self, a, b):
        return torch.softmax(a, dim=-1) * b


def get_inputs():
    return list(torch.randn(24, 2 * 48).chunk(2, dim=-1))


def get_init_inputs():
    return []
