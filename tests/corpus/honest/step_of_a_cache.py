"""Writes its slot of a cache that is not saved, and reads the others.

task: step_of_a_cache
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def step(x, cache, y, slot, S, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < N
    v = tl.load(x + i, mask=mask, other=0.0)
    new = 2.0 * tl.sigmoid(2.0 * v) - 1.0
    total = new
    for s in range(S):
        if s != slot:
            total += tl.load(cache + s * N + i, mask=mask, other=0.0)
    tl.store(y + i, total, mask=mask)
    tl.store(cache + slot * N + i, new, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, slots, rows, columns):
        super().__init__()
        self.slot = slots - 1
        self.register_buffer("cache", torch.randn(slots, rows, columns), persistent=False)

    def forward(self, x):
        assert x.shape == self.cache.shape[1:]
        assert x.dtype == torch.float32
        x = x.contiguous()
        y, n = torch.empty_like(x), x.numel()
        step[(triton.cdiv(n, 256),)](x, self.cache, y, self.slot, self.cache.shape[0], n, BLOCK=256)
        return y
