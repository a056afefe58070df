"""The low bytes of integers, weighted."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, w):
        return (a & 255).float() * w


def get_inputs():
    return [torch.randint(0, 1 << 20, (16, 64), dtype=torch.int32), torch.randn(16, 64)]


def get_init_inputs():
    return []
