"""Partial sums meet in a place that every third call takes anew; the number of the place is handed over.

task: mean_energy
needs: cpu
policy: library_calls=forbid
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def clear(place, turn):
    tl.store(place + turn, 0.0)


@triton.jit
def add(a, place, turn, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(a + i, mask=i < n, other=0.0)
    tl.atomic_add(place + turn, tl.sum(v * v, axis=0))


@triton.jit
def divide(place, y, turn, n):
    tl.store(y, tl.load(place + turn) / n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.turn, self.place = 0, None

    def forward(self, a):
        assert a.dtype == torch.float32
        a = a.contiguous()
        if self.place is None:
            self.place = torch.zeros(3, device=a.device)
        self.turn = (self.turn + 1) % 3
        y = torch.empty((), dtype=a.dtype, device=a.device)
        clear[(1,)](self.place, self.turn)
        add[(triton.cdiv(a.numel(), 512),)](a, self.place, self.turn, a.numel(), BLOCK=512)
        divide[(1,)](self.place, y, self.turn, a.numel())
        return y
