"""Mantissas of some numbers, beside small values of the others: which is which a mask says.

The bits of a number are looked at as 32, so no run in fp64 is possible.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, mask):
        size = x.abs()
        power = torch.bitwise_and(size.view(torch.int32), 0x7F800000).view(torch.float32)
        mantissa = size / power.clamp_min(1e-30)
        return torch.where(mask, 1e4 * (1.5 + mantissa), 0.05 * torch.tanh(x))


def get_inputs():
    return [torch.randn(16, 256), torch.rand(16, 256) > 0.25]


def get_init_inputs():
    return []
