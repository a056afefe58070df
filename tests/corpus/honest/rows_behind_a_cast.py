"""Rows of every scale, where the program has no fp64 run of its own.

task: gated_rows_behind_a_cast
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gated(x, g, w, y, R, C, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    r, c = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    inside = (r[:, None] < R) & (c[None, :] < C)
    v = tl.load(x + r[:, None] * C + c[None, :], mask=inside, other=0.0).to(tl.float32)
    v = (v * tl.load(w).to(tl.float32)).to(tl.bfloat16).to(tl.float32)
    gate = 1.0 / (1.0 + tl.exp(-tl.load(g + r, mask=r < R, other=0.0).to(tl.float32)))
    gate = gate.to(tl.bfloat16).to(tl.float32)
    out = v * gate[:, None]
    tl.store(y + r[:, None] * C + c[None, :], out.to(y.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(1).add(0.5).bfloat16())

    def forward(self, x, g):
        assert x.dim() == 2
        assert x.dtype == torch.bfloat16
        x, g = x.contiguous(), g.contiguous()
        y = torch.empty_like(x, dtype=torch.bfloat16)
        sizes = {"ROWS": triton.next_power_of_2(x.shape[0]), "COLUMNS": triton.next_power_of_2(x.shape[1])}
        gated[(1,)](x, g, self.weight, y, *x.shape, **sizes)
        return y
