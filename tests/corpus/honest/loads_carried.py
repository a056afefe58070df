"""A pipelined loop stores what it carries in a variable, and loads it behind the loop.

task: row_moments
needs: cpu
"""

import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def moments(x, mean, var, sums, rows, C, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = r < rows
    carried = tl.zeros((BLOCK,), dtype=tl.float32)
    for c in tl.range(0, C, num_stages=3):
        carried += tl.load(x + r * C + c, mask=mask, other=0.0)
        tl.store(sums + c * rows + r, carried, mask=mask)
    total = tl.load(sums + (C - 1) * rows + r, mask=mask, other=0.0)
    m = total / C
    square = tl.zeros((BLOCK,), dtype=tl.float32)
    for c in tl.range(0, C, num_stages=3):
        d = tl.load(x + r * C + c, mask=mask, other=0.0) - m
        square += d * d
    tl.store(mean + r, m, mask=mask)
    tl.store(var + r, square / C, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        mean, var, sums = x.new_empty(rows), x.new_empty(rows), x.new_empty(columns, rows)
        moments[(triton.cdiv(rows, 16),)](x, mean, var, sums, rows, columns, BLOCK=16)
        return mean, var
