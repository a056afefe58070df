"""Tiles are read in one order and written in the other.

task: turned
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def turn(x, y, rows, columns, BLOCK: tl.constexpr):
    r = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[:, None]
    c = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (r < rows) & (c < columns)
    first = tl.program_id(0) * rows * columns
    v = tl.load(x + first + r * columns + c, mask=inside, other=0.0)
    tl.store(y + first + c * rows + r, v, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dim() == 3
        assert x.dtype == torch.float32
        x = x.contiguous()
        batch, rows, columns = x.shape
        y = x.new_empty(batch, columns, rows)
        turn[(batch, triton.cdiv(rows, 64), triton.cdiv(columns, 64))](x, y, rows, columns, BLOCK=64)
        return y
