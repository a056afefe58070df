"""Sums in another order: a mean of nearly zero is what rounding leaves of it, here as in the reference.

task: feature_energies
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def normed(x, energy, mean, load, y, R, C, BLOCK: tl.constexpr):
    c, r = tl.program_id(0), tl.arange(0, BLOCK)
    total, squares = 0.0, 0.0
    for start in range(0, R, BLOCK):
        v = tl.load(x + (start + r) * C + c, mask=start + r < R, other=0.0)
        total += tl.sum(v)
        squares += tl.sum(v * v)
    middle, square = total / R, squares / R
    deviations = 0.0
    for start in range(0, R, BLOCK):
        v = tl.load(x + (start + r) * C + c, mask=start + r < R, other=0.0)
        d = tl.where(start + r < R, v - middle, 0.0)
        deviations += tl.sum(d * d)
    scale = tl.rsqrt(deviations / R + 1e-12)
    for start in range(0, R, BLOCK):
        v = tl.load(x + (start + r) * C + c, mask=start + r < R, other=0.0)
        tl.store(y + (start + r) * C + c, v * scale, mask=start + r < R)
    tl.store(load + c, square)
    tl.store(energy + c, 0.9 * tl.load(energy + c) + 0.1 * square)
    tl.store(mean + c, 0.9 * tl.load(mean + c) + 0.1 * middle)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("energy", torch.zeros(features))
        self.register_buffer("mean", torch.zeros(features))
        self.load = None

    def forward(self, x):
        assert x.dim() == 2
        assert x.dtype == torch.float32
        x = x.contiguous()
        rows, features = x.shape
        y, load = torch.empty_like(x), x.new_empty(features)
        normed[(features,)](x, self.energy, self.mean, load, y, rows, features, BLOCK=128)
        self.load = load
        return y
