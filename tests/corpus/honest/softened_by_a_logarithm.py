"""The logarithm of one plus an exponential: far below zero it is right to a rounding of the one.

task: softened
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def soften(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(y + i, tl.where(v > 20.0, v, tl.log(1.0 + tl.exp(v))), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dtype == torch.float32
        x = x.contiguous()
        y, n = torch.empty_like(x), x.numel()
        soften[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
        return y
