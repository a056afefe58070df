"""The stages of a loop as the fourth argument of tl.range, and a step down that is a constant.

task: row_moments
needs: cpu
"""

import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def moments(x, mean, var, rows, C, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    square = tl.zeros((BLOCK,), dtype=tl.float32)
    for c in tl.range(0, C, 1, 3):
        total += tl.load(x + r * C + c, mask=r < rows, other=0.0)
    for c in range(C - 1, -1, -1):
        d = tl.load(x + r * C + c, mask=r < rows, other=0.0) - total / C
        square += d * d
    tl.store(mean + r, total / C, mask=r < rows)
    tl.store(var + r, square / C, mask=r < rows)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        mean, var = x.new_empty(rows), x.new_empty(rows)
        moments[(triton.cdiv(rows, 16),)](x, mean, var, rows, columns, BLOCK=16)
        return mean, var
