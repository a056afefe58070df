"""A kernel packs an eighth of the rows, padded to full blocks, for the library; another does the others.

task: gain_of_many_rows
needs: cpu
policy: host=recorded
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def packed(x, y, m, C, padded, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = i % padded
    tl.store(y + i, tl.load(x + i // padded * C + c, mask=(i < m) & (c < C), other=0.0), mask=i < m)


@triton.jit
def gained(x, done, w, y, n, m, C, padded, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = i % C
    v = tl.load(x + i, mask=i < n, other=0.0)
    found = tl.load(done + i // C * padded + c, mask=i < m, other=0.0)
    found = tl.where(i < m, found, 1 / (1 + tl.exp(-v)))
    tl.store(y + i, found * tl.load(w + c), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))

    def forward(self, x):
        assert x.dtype == torch.float32
        assert x.shape[1] == self.weight.shape[0]
        x = x.contiguous()
        rows, columns = x.shape
        share, padded = rows // 8, triton.cdiv(columns, 48) * 48
        part, m = x.new_empty(share, padded), share * columns
        grid = (triton.cdiv(part.numel(), 1024),)
        packed[grid](x, part, part.numel(), columns, padded, BLOCK=1024)
        done = 1 / (1 + torch.exp(-part))
        y, n = torch.empty_like(x), x.numel()
        gained[(triton.cdiv(n, 1024),)](x, done, self.weight, y, n, m, columns, padded, BLOCK=1024)
        return y
