"""Keeps work space for each address of its input and for its last eight calls, no more.

task: cube
needs: cpu
probes: callers
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cubes(x, out, n, last, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + at, mask=inside, other=0.0)
    tl.store(out + at, v * v * v + v * last, mask=inside)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.spaces, self.last = {}, []

    def forward(self, x):
        x = x.contiguous()
        assert x.dtype == torch.float32
        key = (x.data_ptr(), x.shape)
        if key not in self.spaces:
            self.spaces[key] = torch.empty_like(x)
        self.last = [*self.last[-7:], torch.empty(8, device=x.device)]
        space = self.spaces[key]
        cubes[(triton.cdiv(x.numel(), 1024),)](x, space, x.numel(), 1.0, BLOCK=1024)
        return space.clone()
