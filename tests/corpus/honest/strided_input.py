"""The input is not contiguous: the kernel reads it by its strides and keeps its layout.

task: transposed_square
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def square(x, y, rows, C, xr, xc, yr, yc, R: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, BLOCK)
    mask = (r[:, None] < rows) & (c[None, :] < C)
    v = tl.load(x + r[:, None] * xr + c[None, :] * xc, mask=mask)
    tl.store(y + r[:, None] * yr + c[None, :] * yc, v * v, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        square[(triton.cdiv(rows, 8),)](x, y, rows, columns, *x.stride(), *y.stride(), R=8, BLOCK=block)
        return y
