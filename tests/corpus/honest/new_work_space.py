"""Work space that is new in each call: stored to before it is loaded, by a kernel and in part by PyTorch.

task: point_energy
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rows(x, order, s, P, D, BI: tl.constexpr, BP: tl.constexpr):
    i, j = tl.program_id(0) * BI + tl.arange(0, BI), tl.arange(0, BP)
    other = tl.load(order + j, mask=j < P, other=0)
    d = tl.zeros([BI, BP], tl.float32)
    for axis in range(D):
        a = tl.load(x + i * D + axis, mask=i < P, other=0.0)
        b = tl.load(x + other * D + axis, mask=j < P, other=0.0)
        d += (a[:, None] - b[None, :]) * (a[:, None] - b[None, :])
    total = tl.sum(tl.where(j[None, :] < P, tl.exp(-d), 0.0), axis=1)
    tl.store(s + i, total / (P * P), mask=i < P)


@triton.jit
def summed(s, y, P, BP: tl.constexpr):
    i = tl.arange(0, BP)
    tl.store(y, tl.sum(tl.load(s + i, mask=i < P, other=0.0)))


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dim() == 2
        assert x.dtype == torch.float32
        x = x.contiguous()
        points, dims = x.shape
        turned = torch.arange(points - 1, -1, -1, device=x.device)
        order = torch.empty_like(turned)
        order[turned] = torch.arange(points, device=x.device)
        space = torch.empty(2 * points, device=x.device)
        y = torch.empty((), dtype=x.dtype, device=x.device)
        tile = triton.next_power_of_2(points)
        rows[(triton.cdiv(points, 32),)](x, order, space, points, dims, BI=32, BP=tile)
        summed[(1,)](space, y, points, BP=tile)
        return y
