"""Rows that fade to 1e-6 of the first, summed in four pieces and rounded once, at the end.

task: fading_rows
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(x, weight, y):
    row = tl.program_id(0)
    column = tl.arange(0, 64)
    total = tl.zeros((64,), tl.float32)
    for start in range(0, 64, 16):
        k = start + tl.arange(0, 16)
        a = tl.load(x + row * 64 + k).to(tl.float32)
        b = tl.load(weight + k[:, None] * 64 + column[None, :]).to(tl.float32)
        total += tl.sum(a[:, None] * b, 0)
    tl.store(y + row * 64 + column, (total * tl.exp(-0.1 * row.to(tl.float32))).to(tl.bfloat16))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64, dtype=torch.bfloat16) / 8)

    def forward(self, x):
        assert x.dim() == 2
        assert x.shape[1] == 64
        assert x.dtype == torch.bfloat16
        x, weight = x.contiguous(), self.weight.contiguous()
        y = torch.empty_like(x)
        product[(x.shape[0],)](x, weight, y)
        return y
