"""Sums of one call in single precision, added to those of all calls in double.

task: sums_in_double
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gated(x, y, total, squares, R, C, BR: tl.constexpr, BC: tl.constexpr):
    r, c = tl.arange(0, BR), tl.program_id(0) * BC + tl.arange(0, BC)
    one, two = tl.zeros([BC], tl.float32), tl.zeros([BC], tl.float32)
    for start in range(0, R, BR):
        at = (start + r)[:, None] * C + c[None, :]
        inside = (start + r < R)[:, None] & (c < C)[None, :]
        v = tl.load(x + at, mask=inside, other=0.0)
        out = v * tl.sigmoid(v)
        tl.store(y + at, out, mask=inside)
        out = tl.where(inside, out, 0.0)
        one += tl.sum(out, axis=0)
        two += tl.sum(out * out, axis=0)
    tl.store(total + c, tl.load(total + c, mask=c < C) + one.to(tl.float64), mask=c < C)
    tl.store(squares + c, tl.load(squares + c, mask=c < C) + two.to(tl.float64), mask=c < C)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.register_buffer("total", torch.zeros(columns, dtype=torch.float64))
        self.register_buffer("squares", torch.zeros(columns, dtype=torch.float64))

    def forward(self, x):
        assert x.dim() == 2
        assert x.dtype == torch.float32
        assert x.shape[1] == self.total.shape[0]
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        grid = (triton.cdiv(columns, 32),)
        gated[grid](x, y, self.total, self.squares, rows, columns, BR=16, BC=32)
        return y
