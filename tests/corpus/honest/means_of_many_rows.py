"""Adds up columns of many rows in fp32.

task: means_of_many_rows
probes: all
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def means(x, y, rows, width, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    row, col = tl.arange(0, BLOCK)[:, None], tl.arange(0, WIDTH)
    total = tl.zeros([WIDTH], tl.float32)
    used = rows
    for first in range(0, used, BLOCK):
        here = (first + row < used) & (col < width)[None, :]
        at = (first + row).to(tl.int64) * width + col[None, :]
        total += tl.sum(tl.load(x + at, mask=here, other=0.0).to(tl.float32), axis=0)
    tl.store(y + col, (total / used).to(tl.bfloat16), mask=col < width)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dtype == torch.bfloat16
        assert x.dim() == 2
        x = x.contiguous()
        rows, width = x.shape
        y = x.new_empty(width)
        means[(1,)](x, y, rows, width, BLOCK=256, WIDTH=triton.next_power_of_2(width))
        return y
