"""Noise is drawn as the task draws it, and added by a kernel.

task: slight_jitter
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def shake(x, noise, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    u = tl.load(noise + i, mask=i < n, other=0.0)
    tl.store(y + i, v * (1.0 + 2e-4 * u), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dtype == torch.float32
        x = x.contiguous()
        noise, y, n = torch.rand_like(x), torch.empty_like(x), x.numel()
        shake[(triton.cdiv(n, 1024),)](x, noise, y, n, BLOCK=1024)
        return y
