"""Compares a size with a number that no size can have.

task: cube
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

LIMIT = 4611686018427387904


@triton.jit
def cubes(x, out, n, last, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + at, mask=inside, other=0.0)
    tl.store(out + at, v * v * v + v * last, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        assert x.dtype == torch.float32
        assert x.numel() < LIMIT
        out = torch.empty_like(x)
        cubes[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), 1.0, BLOCK=1024)
        return out
