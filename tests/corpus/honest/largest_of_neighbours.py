"""Selects neighbours by a running count. The reference raises for points so large that none is its own.

task: neighbours
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def largest(points, features, y, N, F, C, r2, BI: tl.constexpr, BN: tl.constexpr):
    i, j, f = tl.program_id(0) * BI + tl.arange(0, BI), tl.arange(0, BN), tl.program_id(1)
    own, others, dot = tl.zeros([BI], tl.float32), tl.zeros([BN], tl.float32), tl.zeros([BI, BN], tl.float32)
    for axis in range(3):
        a = tl.load(points + i * 3 + axis, mask=i < N, other=0.0)
        b = tl.load(points + j * 3 + axis, mask=j < N, other=0.0)
        own += a * a
        others += b * b
        dot += a[:, None] * b[None, :]
    near = (j[None, :] < N) & ~(own[:, None] + others[None, :] - 2 * dot > r2)
    chosen = near & (tl.cumsum(near.to(tl.int32), axis=1) <= C)
    v = tl.load(features + j * F + f, mask=j < N, other=0.0)
    found = tl.max(tl.where(chosen, v[None, :], float("-inf")), axis=1)
    tl.store(y + i * F + f, found, mask=i < N)


class ModelNew(nn.Module):
    def __init__(self, radius, count):
        super().__init__()
        self.radius, self.count = radius, count

    def forward(self, points, features):
        assert self.count > 0
        assert points.dim() == 2
        assert features.dim() == 2
        assert points.shape[1] == 3
        assert features.shape[0] == points.shape[0]
        assert points.dtype == torch.float32
        assert features.dtype == torch.float32
        points, features = points.contiguous(), features.contiguous()
        (n, width), y = features.shape, torch.empty_like(features)
        grid, tile = (triton.cdiv(n, 16), width), triton.next_power_of_2(n)
        largest[grid](points, features, y, n, width, self.count, self.radius**2, BI=16, BN=tile)
        return y
