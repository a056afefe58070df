"""Peaks that are NaN until there is one.

task: peaks_once_seen
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def lowered(x, peak, y, R, C, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r, c = tl.arange(0, ROWS)[:, None], tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = (r < R) & (c < C)[None, :]
    value = tl.load(x + r * C + c[None, :], mask=inside, other=0.0)
    old = tl.load(peak + c, mask=c < C, other=0.0)
    shown = tl.where(inside, value, float("-inf"))
    wrong = tl.max((shown != shown).to(tl.int32), axis=0) > 0
    top = tl.max(tl.where(shown != shown, float("-inf"), shown), axis=0)
    top = tl.where(wrong, float("nan"), top)
    seen = tl.where(old != old, top, tl.where(wrong, top, tl.maximum(old, top)))
    new = tl.where(top > 3.0, seen, old)
    size = tl.where(new != new, 0.0, tl.minimum(new, 3.4028234663852886e38))
    tl.debug_barrier()
    tl.store(peak + c, new, mask=c < C)
    tl.store(y + r * C + c[None, :], value - 0.5 * size[None, :], mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.register_buffer("peak", torch.full((columns,), float("nan")))

    def forward(self, x):
        assert x.dtype == torch.float32
        assert x.dim() == 2
        assert x.shape[1] == self.peak.shape[0]
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        grid, block = (triton.cdiv(columns, 16),), triton.next_power_of_2(rows)
        lowered[grid](x, self.peak, y, rows, columns, ROWS=block, BLOCK=16)
        return y
