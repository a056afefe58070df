"""Allocates where its input lies and checks that this is a GPU; two kernels, the second on the first's result.

task: tall_scale
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def halve(x, t, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(t + i, tl.load(x + i, mask=i < n) * 0.5, mask=i < n)


@triton.jit
def five_times(t, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(t + i, mask=i < n) * 5.0, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dim() == 2
        assert x.dtype == torch.float32
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        if x.device.type != "cuda":
            raise ValueError("on a GPU only")
        t = torch.empty(x.shape, device=x.device)
        block = min(8192, triton.next_power_of_2(n))
        halve[(triton.cdiv(n, block),)](x, t, n, BLOCK=block)
        five_times[(triton.cdiv(n, block),)](t, y, n, BLOCK=block)
        return y
