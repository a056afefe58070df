"""Sums into work space that is kept: PyTorch clears it in each call, and a ticket counts on from call to call.

task: counted_tides
needs: cpu
policy: library_calls=forbid
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def waves(times, wave, tickets, n, step, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    now = tl.load(times + i * step, mask=i < n, other=0.0)
    tl.atomic_add(wave + i, tl.sin(now), mask=i < n)
    tl.atomic_add(wave + i, tl.sin(2 * now) / 2, mask=i < n)
    tl.atomic_add(tickets, 1)


@triton.jit
def times_wave(x, wave, tickets, calls, out, C, across, down, share, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    value = tl.load(x + row * across + c * down, mask=c < C, other=0.0)
    tl.store(out + row * C + c, value * tl.load(wave + c, mask=c < C, other=0.0), mask=c < C)
    if row == 0:
        whole = tl.load(tickets) % share == 0
        tl.store(calls, tl.load(calls) + tl.where(whole, 1.0, 0.0))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))
        self.wave = None

    def forward(self, x, times):
        assert x.dim() == 2
        assert x.shape[1] == times.shape[0]
        n = times.shape[0]
        if self.wave is None or self.wave.shape[0] != n:
            self.wave = torch.empty((n,), device=x.device)
            self.tickets = torch.zeros((1,), dtype=torch.int32, device=x.device)
        self.wave.zero_()
        programs = triton.cdiv(n, 32)
        waves[(programs,)](times, self.wave, self.tickets, n, times.stride(0), BLOCK=32)
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        block = triton.next_power_of_2(n)
        strides = (x.stride(0), x.stride(1))
        times_wave[(x.shape[0],)](
            x, self.wave, self.tickets, self.calls, out, n, *strides, programs, BLOCK=block
        )
        return out
