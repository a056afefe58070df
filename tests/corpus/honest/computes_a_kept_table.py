"""As a plan: computes in each call what the task keeps of constants and of its weights.

task: weighted_by_a_kept_table
needs: cpu
policy: host=recorded
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def weighted(x, gain, y, N, C, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = at % C
    size = tl.abs(tl.load(gain + column, mask=at < N, other=0.0))
    value = tl.sigmoid(tl.load(x + at, mask=at < N, other=0.0) * size)
    tl.store(y + at, value * (0.5 + column.to(tl.float32) / (C - 1)), mask=at < N)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        assert x.dtype == torch.float32
        assert x.shape[-1] == self.gain.shape[0]
        assert x.shape[-1] > 1
        x = x.contiguous()
        y = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        weighted[grid](x, self.gain, y, x.numel(), x.shape[-1], BLOCK=1024)
        return y
