"""Divides by zero, shifts too far and casts what does not fit, in lanes that it does not use.

task: scale_shift
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_shift(x, weight, bias, y, n, C, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    group = (i + 1) // (C - C + i % 4)
    group = tl.where(i % 4 == 0, 0, group)
    high = tl.where(i % 64 < 32, 1 << (i % 64), 0)
    whole = tl.where(tl.abs(v) < 1e9, v.to(tl.int32), 0)
    v += ((group < 0) | ((high == 0) & (i % 64 < 32)) | (whole > 2000000000)).to(tl.float32)
    w = tl.load(weight + i % C)
    tl.store(y + i, v * w + tl.load(bias + i % C), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        assert x.dtype == torch.float32
        assert x.shape[-1] == self.weight.shape[0]
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        scale_shift[(triton.cdiv(n, 1024),)](x, self.weight, self.bias, y, n, x.shape[-1], BLOCK=1024)
        return y
