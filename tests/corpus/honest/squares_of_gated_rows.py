"""Sums of squares in another order than the reference's.

task: gated_squares
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gated(x, y, squares, rows, width, BLOCK: tl.constexpr):
    column = tl.program_id(0)
    row = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, rows, BLOCK):
        inside = first + row < rows
        at = (first + row) * width + column
        v = tl.load(x + at, mask=inside, other=0.0)
        v = v * tl.sigmoid(v)
        tl.store(y + at, v, mask=inside)
        total += v * v
    before, more = tl.load(squares + column), tl.sum(total, axis=0)
    tl.store(squares + column, before + more)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("squares", torch.zeros(width))

    def forward(self, x):
        assert x.dtype == torch.float32
        assert x.dim() == 2
        assert x.is_contiguous()
        assert x.shape[1] == self.squares.shape[0]
        y = torch.empty_like(x)
        gated[(x.shape[1],)](x, y, self.squares, x.shape[0], x.shape[1], BLOCK=1024)
        return y
