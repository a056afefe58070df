"""A table is kept for as long as inputs have the same shape.

task: column_weights
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def number(t, n, C, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(t + i, i % C, mask=i < n)


@triton.jit
def weigh(x, t, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    v = tl.load(x + i, mask=m, other=0.0)
    tl.store(y + i, v * tl.load(t + i, mask=m, other=0).to(tl.float32), mask=m)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.shape = None, None

    def forward(self, x):
        x = x.contiguous()
        y, n = torch.empty_like(x), x.numel()
        grid = (triton.cdiv(n, 1024),)
        if self.table is None or self.shape != x.shape:
            self.table, self.shape = torch.empty(n, dtype=torch.int32, device=x.device), x.shape
            number[grid](self.table, n, x.shape[1], BLOCK=1024)
        weigh[grid](x, self.table, y, n, BLOCK=1024)
        return y
