"""Rows of every scale, in eight bits.

task: gated_rows_in_eight_bits
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gated(x, g, y, R, C, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    r, c = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    inside = (r[:, None] < R) & (c[None, :] < C)
    v = tl.load(x + r[:, None] * C + c[None, :], mask=inside, other=0.0).to(tl.float32)
    gate = 1.0 / (1.0 + tl.exp(-tl.load(g + r, mask=r < R, other=0.0).to(tl.float32)))
    out = v * gate[:, None]
    tl.store(y + r[:, None] * C + c[None, :], out.to(y.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, g):
        assert x.dim() == 2
        assert x.dtype == torch.float32
        x, g = x.contiguous(), g.contiguous()
        y = torch.empty_like(x, dtype=torch.float8_e4m3fn)
        sizes = {"ROWS": triton.next_power_of_2(x.shape[0]), "COLUMNS": triton.next_power_of_2(x.shape[1])}
        gated[(1,)](x, g, y, *x.shape, **sizes)
        return y
