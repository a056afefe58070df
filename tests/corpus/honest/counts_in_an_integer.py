"""Counts its calls in the kernel, as the task does.

task: counted_gain
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gained(x, gain, y, N, C, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < N
    value = tl.exp(0.1 * tl.load(x + at, mask=mask, other=0.0))
    tl.store(y + at, value * tl.load(gain + at % C, mask=mask, other=0.0), mask=mask)


@triton.jit
def counted(calls):
    tl.store(calls, tl.load(calls) + 1)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(features))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        assert x.shape[-1] == self.gain.shape[0]
        x = x.contiguous()
        y = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 256),)
        gained[grid](x, self.gain, y, x.numel(), x.shape[-1], BLOCK=256)
        counted[(1,)](self.calls)
        return y
