# policy: library_calls=forbid
"""Largest minus mean over the middle dimension."""

import torch
from torch import nn

batch = 64
steps = 512
features = 2048


class Model(nn.Module):
    def forward(self, x):
        return x.amax(dim=1) - x.mean(dim=1)


def get_inputs():
    return [torch.randn(batch, steps, features)]


def get_init_inputs():
    return []
