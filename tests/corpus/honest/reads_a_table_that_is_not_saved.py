"""Loads a table from the buffer, which no state_dict holds and a caller may change.

task: waves
needs: cpu
policy: host=recorded
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def times(x, wave, y, N, C, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < N
    factor = tl.load(wave + at % C, mask=mask, other=0.0)
    tl.store(y + at, tl.exp(0.1 * tl.load(x + at, mask=mask, other=0.0)) * factor, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.register_buffer("wave", torch.sin(0.1 * torch.arange(columns)), persistent=False)

    def forward(self, x):
        assert x.shape[-1] == self.wave.shape[0]
        x = x.contiguous()
        y = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        times[grid](x, self.wave, y, x.numel(), x.shape[-1], BLOCK=1024)
        return y
