"""Every row in fp32, also those that are small beside every third.

task: rows_of_two_units
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(x, weight, y):
    row = tl.program_id(0)
    k = tl.arange(0, 64)
    a = tl.load(x + row * 64 + k)
    b = tl.load(weight + k[:, None] * 64 + k[None, :])
    unit = 1.0
    if row % 3 != 0:
        unit = 1.0 / 32768.0
    tl.store(y + row * 64 + k, tl.sum(a[:, None] * b, 0) * unit)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64) / 8)

    def forward(self, x):
        assert x.dim() == 2
        assert x.shape[1] == 64
        assert x.dtype == torch.float32
        x, weight = x.contiguous(), self.weight.contiguous()
        y = torch.empty_like(x)
        product[(x.shape[0],)](x, weight, y)
        return y
