"""Powers of two, log2(e) multiplied in before the maximum is taken away: one more rounding of each argument.

task: row_softmax
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def softmax_rows(x, y, rows, C, R: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, BLOCK)
    inside = (r[:, None] < rows) & (c[None, :] < C)
    at = r[:, None] * C + c[None, :]
    v = tl.load(x + at, mask=inside, other=-float("inf")) * LOG2E
    e = tl.exp2(v - tl.max(v, axis=1)[:, None])
    tl.store(y + at, e * (1.0 / tl.sum(e, axis=1))[:, None], mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        softmax_rows[(triton.cdiv(rows, 8),)](x, y, rows, columns, R=8, BLOCK=triton.next_power_of_2(columns))
        return y
