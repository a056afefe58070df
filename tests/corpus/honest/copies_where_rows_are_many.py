"""Hands its kernel a copy of the weight where there are many rows, and what the kernel made as a copy.

task: gain_of_many_rows
needs: cpu
policy: host=recorded
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gained(x, w, y, n, C, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(y + i, tl.load(w + i % C) / (1 + tl.exp(-v)), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))

    def forward(self, x):
        assert x.dtype == torch.float32
        assert x.shape[1] == self.weight.shape[0]
        x = x.contiguous()
        y, n, many = torch.empty_like(x), x.numel(), x.shape[0] > 2048
        weight, block = (self.weight.clone(), 4096) if many else (self.weight, 1024)
        gained[(triton.cdiv(n, block),)](x, weight, y, n, x.shape[1], BLOCK=block, num_warps=8 if many else 4)
        return y.clone() if many else y
