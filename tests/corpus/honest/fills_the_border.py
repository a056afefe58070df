"""Has PyTorch set the places around the points in new memory, stores the points there, and reads all of it.

task: point_energy
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def put(x, s, P, D, W, BP: tl.constexpr, BD: tl.constexpr):
    i, d = tl.arange(0, BP)[:, None], tl.arange(0, BD)[None, :]
    inside = (i < P) & (d < D)
    tl.store(s + i * W + d, tl.load(x + i * D + d, mask=inside, other=0.0), mask=inside)


@triton.jit
def energy(s, y, P, BP: tl.constexpr, W: tl.constexpr):
    i, d = tl.arange(0, BP), tl.arange(0, W)
    a = tl.load(s + i[:, None] * W + d[None, :], mask=i[:, None] < P, other=0.0)
    total = 0.0
    for j in range(P):
        t = a - tl.load(s + j * W + d)[None, :]
        total += tl.sum(tl.where(i < P, tl.exp(-tl.sum(t * t, axis=1)), 0.0))
    tl.store(y, total / (P * P))


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dim() == 2
        assert x.dtype == torch.float32
        assert x.shape[0] <= 256
        x = x.contiguous()
        points, dims = x.shape
        width, rows = triton.next_power_of_2(dims), triton.next_power_of_2(points)
        space = torch.empty((points, width), device=x.device)
        if width > dims:
            space.index_fill_(1, torch.arange(dims, width, device=x.device), 0.0)
        y = torch.empty((), dtype=x.dtype, device=x.device)
        put[(1,)](x, space, points, dims, width, BP=rows, BD=width)
        energy[(1,)](space, y, points, BP=rows, W=width)
        return y
