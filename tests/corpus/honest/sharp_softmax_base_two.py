"""Powers of two: each small probability is as exact as its argument in fp32.

task: sharp_softmax
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

SCALE = tl.constexpr(8.0 * 1.4426950408889634)


@triton.jit
def softmax_rows(x, y, rows, C, R: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, BLOCK)
    inside = (r[:, None] < rows) & (c[None, :] < C)
    at = r[:, None] * C + c[None, :]
    v = tl.load(x + at, mask=inside, other=-float("inf")) * SCALE
    e = tl.exp2(v - tl.max(v, axis=1)[:, None])
    p = e / tl.sum(e, axis=1)[:, None]
    tl.store(y + at, p, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dim() == 2
        assert x.dtype == torch.float32
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        softmax_rows[(triton.cdiv(rows, 8),)](x, y, rows, columns, R=8, BLOCK=triton.next_power_of_2(columns))
        return y
