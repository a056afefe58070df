import torch
import torch.nn as nn


class Model(nn.Module):
    """Of the left half of each row; the right half is the caller's."""

    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(24, 2 * 48)[:, :48]]


def get_init_inputs():
    return []
