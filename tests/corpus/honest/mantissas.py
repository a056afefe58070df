"""Composes a hyperbolic tangent of a sigmoid, where no run in fp64 is possible.

task: mantissas
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mixed(x, mask, y, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = at < size
    value = tl.load(x + at, mask=here, other=0.0)
    chosen = tl.load(mask + at, mask=here, other=0)
    away = tl.abs(value)
    power = (away.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
    large = 1e4 * (1.5 + away / tl.maximum(power, 1e-30))
    small = 0.05 * (2.0 * tl.sigmoid(2.0 * value) - 1.0)
    tl.store(y + at, tl.where(chosen, large, small), mask=here)


class ModelNew(nn.Module):
    def forward(self, x, mask):
        assert x.dtype == torch.float32
        assert x.shape == mask.shape
        x, mask = x.contiguous(), mask.contiguous()
        y = torch.empty_like(x)
        mixed[(triton.cdiv(x.numel(), 1024),)](x, mask, y, x.numel(), BLOCK=1024)
        return y
