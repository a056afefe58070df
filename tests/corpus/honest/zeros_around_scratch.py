"""Work space that is kept: its inside is written on every call, the zeros around it once.

task: tides
needs: cpu
policy: library_calls=forbid
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def waves(times, wave, n, step, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    now = tl.load(times + i * step, mask=i < n, other=0.0)
    tl.store(wave + 1 + i, tl.sin(now) + tl.sin(2 * now) / 2, mask=i < n)


@triton.jit
def times_wave(x, wave, out, C, across, down, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    value = tl.load(x + row * across + c * down, mask=c < C, other=0.0)
    tl.store(
        out + row * C + c, value * tl.load(wave + 1 + c, mask=c < C, other=0.0) + tl.load(wave), mask=c < C
    )


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.wave = None

    def forward(self, x, times):
        assert x.dim() == 2
        assert x.shape[1] == times.shape[0]
        n = times.shape[0]
        if self.wave is None or self.wave.shape[0] != n + 2:
            self.wave = torch.zeros((n + 2,), device=x.device)
        waves[(triton.cdiv(n, 32),)](times, self.wave, n, times.stride(0), BLOCK=32)
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        block = triton.next_power_of_2(n)
        times_wave[(x.shape[0],)](x, self.wave, out, n, x.stride(0), x.stride(1), BLOCK=block)
        return out
