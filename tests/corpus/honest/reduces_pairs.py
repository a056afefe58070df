"""Reduces means and spreads of parts with Welford's combination, which commutes, and updates in place.

task: row_moments
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def joined(n1, m1, s1, n2, m2, s2):
    n = n1 + n2
    share = tl.where(n > 0, n2 / tl.maximum(n, 1.0), 0.0)
    d = m2 - m1
    return n, m1 + d * share, s1 + s2 + d * d * n1 * share


@triton.jit
def moments(x, work, mean, var, C, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(work + row * C + c, tl.load(x + row * C + c, mask=c < C, other=0.0), mask=c < C)
    v = tl.load(work + row * C + c, mask=c < C, other=0.0)
    tl.store(work + row * C + c, v * 1.0, mask=c < C)
    n, m, s = tl.reduce(((c < C).to(tl.float32), v, v * 0.0), 0, joined)
    tl.store(mean + row, m)
    tl.store(var + row, s / C)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dim() == 2
        assert x.dtype == torch.float32
        x = x.contiguous()
        rows, columns = x.shape
        block = triton.next_power_of_2(columns)
        mean, var, work = x.new_empty(rows), x.new_empty(rows), torch.empty_like(x)
        moments[(rows,)](x, work, mean, var, columns, BLOCK=block)
        return mean, var
