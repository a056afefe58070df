# policy: library_calls=forbid
"""Average pooling of volumes, 2x2x2."""

import torch
from torch import nn
from torch.nn import functional as F

batch = 8
channels = 32
depth = 32
size = 64


class Model(nn.Module):
    def forward(self, x):
        return F.avg_pool3d(x, kernel_size=2)


def get_inputs():
    return [torch.randn(batch, channels, depth, size, size)]


def get_init_inputs():
    return []
