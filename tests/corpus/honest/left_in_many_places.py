"""Leaves everything that the reference leaves: in attributes, an object, a queue and a buffer.

task: left_in_many_places
needs: cpu
"""

from collections import deque

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gated(x, y, gates, turned, load, average, active, R, C, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    count = tl.zeros([BLOCK], tl.int32)
    for r in range(R):
        at = r * C + c
        v = tl.load(x + at, mask=c < C, other=0.0)
        g = 1.0 / (1.0 + tl.exp(-v))
        tl.store(y + at, v * g, mask=c < C)
        tl.store(gates + at, g, mask=c < C)
        tl.store(turned + 2 * at, -v, mask=c < C)
        tl.store(turned + 2 * at + 1, v, mask=c < C)
        total += g
        count += ((v > 0) & (c < C)).to(tl.int32)
    total /= R
    tl.store(load + c, total, mask=c < C)
    before = tl.load(average + c, mask=c < C, other=0.0)
    tl.store(average + c, (before + total) / 2, mask=c < C)
    tl.atomic_add(active, tl.sum(count))


class Stats:
    load = None


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.stats = Stats()
        self.recent = deque(maxlen=4)
        self.register_buffer("average", torch.zeros(columns), persistent=False)
        self.gates, self.turned, self.active = None, None, 0

    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y, gates = torch.empty_like(x), torch.empty_like(x)
        turned = torch.empty((rows, columns), dtype=torch.complex64, device=x.device)
        load = x.new_empty(columns)
        active = torch.zeros(1, dtype=torch.int32, device=x.device)
        grid = (triton.cdiv(columns, 128),)
        pairs = torch.view_as_real(turned)
        gated[grid](x, y, gates, pairs, load, self.average, active, rows, columns, BLOCK=128)
        self.gates, self.turned, self.active = gates, turned, active.item()
        self.stats.load = load
        self.recent.append(load)
        return y
