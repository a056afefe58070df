"""Keeps a large work space, and stores to it in every call before it loads from it.

task: point_energy
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def energy(x, s, y, P, D, BP: tl.constexpr, BD: tl.constexpr):
    i, d = tl.arange(0, BP), tl.arange(0, BD)
    at = i[:, None] * D + d[None, :]
    inside = (i[:, None] < P) & (d[None, :] < D)
    a = tl.load(x + at, mask=inside, other=0.0)
    total = 0.0
    for j in range(P):
        b = tl.load(x + j * D + d, mask=d < D, other=0.0)
        t = a - b[None, :]
        total += tl.sum(tl.where(i < P, tl.exp(-tl.sum(t * t, axis=1)), 0.0))
    total = total / (P * P)
    tl.store(s + 16 + at, a, mask=inside)
    tl.debug_barrier()
    total += 0.0 * tl.sum(tl.load(s + 16 + at, mask=inside, other=0.0))
    tl.store(y, total)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = None
        self.size = 0

    def forward(self, x):
        assert x.dim() == 2
        assert x.dtype == torch.float32
        assert x.shape[0] <= 256
        x = x.contiguous()
        if self.size != x.numel():
            self.table, self.size = torch.zeros(68 << 20, device=x.device), x.numel()
        y = torch.empty((), dtype=x.dtype, device=x.device)
        tile = [triton.next_power_of_2(size) for size in x.shape]
        energy[(1,)](x, self.table, y, *x.shape, BP=tile[0], BD=tile[1])
        return y
