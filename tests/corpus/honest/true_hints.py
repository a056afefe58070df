"""States what holds at every size: contiguous offsets that start at multiples of the tile.

task: scale_shift
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_shift(x, w, b, y, n, C, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    i = tl.max_contiguous(tl.multiple_of(i, BLOCK), BLOCK)
    tl.assume(n > 0)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, v * tl.load(w + i % C) + tl.load(b + i % C), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        scale_shift[(triton.cdiv(n, 1024),)](x, self.weight, self.bias, y, n, x.shape[-1], BLOCK=1024)
        return y
