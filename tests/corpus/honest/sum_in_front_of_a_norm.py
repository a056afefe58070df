"""A kernel adds two inputs, PyTorch normalizes the sum.

task: residual_layernorm
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add(x, residual, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0) + tl.load(residual + i, mask=i < n, other=0.0)
    tl.store(y + i, v, mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        z = torch.empty_like(x)
        add[(triton.cdiv(x.numel(), 256),)](x, residual, z, x.numel(), BLOCK=256)
        return self.norm(z)
