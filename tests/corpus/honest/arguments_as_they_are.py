"""The names and defaults of Model's forward.

task: product_and_first
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(x, y, z, scale, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(z + i, v * tl.load(y + i, mask=i < n, other=0.0) + v * scale, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x, y, scale=0.5):
        assert x.shape == y.shape
        x, y = x.contiguous(), y.contiguous()
        z = torch.empty_like(x)
        n = x.numel()
        product[(triton.cdiv(n, 256),)](x, y, z, float(scale), n, BLOCK=256)
        return z
