"""Writes its row to the cache that the caller owns, and sums the rows so far.

task: step_written_to_a_cache
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def step(x, cache, position, y, S, N, BLOCK: tl.constexpr):
    row, block = tl.program_id(0), tl.program_id(1)
    i = block * BLOCK + tl.arange(0, BLOCK)
    mask = i < N
    place = tl.minimum(tl.maximum(tl.load(position + row), 0), S - 1)
    own = cache + row.to(tl.int64) * S * N
    v = tl.load(x + row * N + i, mask=mask, other=0.0)
    new = v / (1.0 + tl.abs(v))
    total = new
    for s in range(place):
        total += tl.load(own + s * N + i, mask=mask, other=0.0)
    tl.store(y + row * N + i, total, mask=mask)
    tl.store(own + place * N + i, new, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, cache, position):
        assert x.dim() == 2
        assert cache.dim() == 3
        assert position.shape == x.shape[:1]
        assert cache.shape[0] == x.shape[0]
        assert cache.shape[2] == x.shape[1]
        assert x.dtype == cache.dtype == torch.float32
        assert position.dtype == torch.int64
        assert x.is_contiguous()
        assert cache.is_contiguous()
        assert position.is_contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        step[(rows, triton.cdiv(columns, 64))](x, cache, position, y, cache.shape[1], columns, BLOCK=64)
        return y
