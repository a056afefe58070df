"""Both sums in another order than the reference's.

task: energy_and_penalty
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def squares(x, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < n, other=0.0)
        total += v * v
    return tl.sum(total)


@triton.jit
def both(x, mean, out, n, m, BLOCK: tl.constexpr):
    tl.store(out, squares(x, n, BLOCK))
    tl.store(out + 1, squares(mean, m, BLOCK) / m * 0.002)


class ModelNew(nn.Module):
    def forward(self, x, mean):
        assert x.dtype == mean.dtype == torch.float32
        x, mean = x.contiguous(), mean.contiguous()
        out = torch.empty(2, device=x.device)
        both[(1,)](x, mean, out, x.numel(), mean.numel(), BLOCK=1024)
        return out
