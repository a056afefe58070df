"""Multiplies integers of 64 bits in 64.

task: affine_integers
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def affine(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.store(y + i, v * 3 + 1, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dtype == torch.int64
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        affine[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
        return y
