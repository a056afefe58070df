"""Keeps sums of squares in fp32, of columns of any size.

task: sums_of_units
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gate(x, y, squares, rows, width, BLOCK: tl.constexpr, PART: tl.constexpr):
    row, col = tl.arange(0, BLOCK)[:, None], tl.program_id(0) * PART + tl.arange(0, PART)
    here = (row < rows) & (col < width)[None, :]
    at = row * width + col[None, :]
    value = tl.load(x + at, mask=here, other=0.0)
    value = value * tl.sigmoid(value)
    tl.store(y + at, value, mask=here)
    before = tl.load(squares + col, mask=col < width)
    tl.store(squares + col, before + tl.sum(value * value, axis=0), mask=col < width)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("squares", torch.zeros(width))

    def forward(self, x):
        assert x.dtype == torch.float32
        assert x.dim() == 2
        assert x.shape[1] == self.squares.shape[0]
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, width = x.shape
        block = triton.next_power_of_2(rows)
        gate[(triton.cdiv(width, 32),)](x, y, self.squares, rows, width, BLOCK=block, PART=32)
        return y
