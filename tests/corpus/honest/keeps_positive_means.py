"""A mean in another order, of which the positive part is kept.

task: positive_means
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def added(x, last, y, R, C, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r, c = tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK)
    inside = (r < R) & (c < C)[None, :]
    value = tl.load(x + r * C + c[None, :], mask=inside, other=0.0)
    old = tl.load(last + c, mask=c < C, other=0.0)
    mean = tl.sum(value, axis=0) / R
    new = tl.where(mean > 0.0, mean, tl.where(mean != mean, mean, 0.0))
    tl.debug_barrier()
    tl.store(last + c, new, mask=c < C)
    tl.store(y + r * C + c[None, :], value + 0.5 * old[None, :], mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.register_buffer("last", torch.zeros(columns))

    def forward(self, x):
        assert x.dtype == torch.float32
        assert x.dim() == 2
        assert x.shape[1] == self.last.shape[0]
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        blocks = {"ROWS": triton.next_power_of_2(rows), "BLOCK": triton.next_power_of_2(columns)}
        added[(1,)](x, self.last, y, rows, columns, **blocks)
        return y
