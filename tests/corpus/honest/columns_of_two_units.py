"""Columns of two units, each to its own precision.

task: columns_of_two_units
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def both(x, y):
    row = tl.program_id(0)
    column = tl.arange(0, 64)
    v = tl.load(x + row * 64 + column)
    e = tl.exp(-tl.abs(v))
    soft = tl.maximum(v, 0.0) + libdevice.log1p(e)
    share = tl.where(v >= 0, 1.0 / (1.0 + e), e / (1.0 + e))
    tl.store(y + row * 64 + column, tl.where(column < 4, 1e4 * soft, share))


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dim() == 2
        assert x.shape[1] == 64
        assert x.dtype == torch.float32
        x = x.contiguous()
        y = torch.empty_like(x)
        both[(x.shape[0],)](x, y)
        return y
