"""Channels of every scale, sample by sample.

task: gated_channels
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gated(x, g, y, B, T, C, BB: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr):
    b = tl.arange(0, BB)[:, None, None]
    t = tl.arange(0, BT)[None, :, None]
    c = tl.arange(0, BC)[None, None, :]
    inside = (b < B) & (t < T) & (c < C)
    v = tl.load(x + (b * T + t) * C + c, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(g + b * C + c, mask=(b < B) & (c < C), other=0.0).to(tl.float32)
    out = v / (1.0 + tl.exp(-gate))
    tl.store(y + (b * T + t) * C + c, out.to(y.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, g):
        assert x.dim() == 3
        assert x.dtype == torch.bfloat16
        x, g = x.contiguous(), g.contiguous()
        y = torch.empty_like(x)
        tile = [triton.next_power_of_2(size) for size in x.shape]
        gated[(1,)](x, g, y, *x.shape, BB=tile[0], BT=tile[1], BC=tile[2])
        return y
