# policy: library_calls=forbid
"""The pooling behind a network's stem: 3x3, stride 2, over ReLU."""

import torch
from torch import nn
from torch.nn import functional as F

batch = 32
channels = 64
size = 112


class Model(nn.Module):
    def forward(self, x):
        return F.max_pool2d(F.relu(x), kernel_size=3, stride=2, padding=1)


def get_inputs():
    return [torch.randn(batch, channels, size, size)]


def get_init_inputs():
    return []
