"""Gives an object of its own attributes with names of nn.Module's.

task: cube
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cubes(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + at, mask=inside, other=0.0)
    tl.store(out + at, v * v * v + v, mask=inside)


class Plans:
    def __init__(self):
        self._modules = [1024]
        self._buffers = {}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.plans = Plans()
        self._modules["nothing"] = None

    def forward(self, x):
        x = x.contiguous()
        assert x.dtype == torch.float32
        out = torch.empty_like(x)
        block = self.plans._modules[0]
        cubes[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block)
        return out
