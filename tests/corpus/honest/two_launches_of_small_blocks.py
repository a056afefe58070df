"""Small blocks make the launches long at the task's own size; the second reads what the first has stored.

task: gain_of_many_rows
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sigmoid(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(y + i, 1 / (1 + tl.exp(-v)), mask=i < n)


@triton.jit
def gained(x, w, y, n, C, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(y + i, v * tl.load(w + i % C), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))

    def forward(self, x):
        assert x.is_contiguous()
        assert x.dtype == torch.float32
        assert x.shape[1] == self.weight.shape[0]
        rows, features = x.shape
        n = x.numel()
        between, y = torch.empty_like(x), torch.empty_like(x)
        sigmoid[(triton.cdiv(n, 16),)](x, between, n, BLOCK=16)
        gained[(triton.cdiv(n, 64),)](between, self.weight, y, n, features, BLOCK=64)
        return y
