"""A dict of outputs.

task: row_extremes
needs: cpu
"""

import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def extremes(x, largest, smallest, rows, C, R: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, BLOCK)
    mask = (r[:, None] < rows) & (c[None, :] < C)
    v = tl.load(x + r[:, None] * C + c[None, :], mask=mask, other=0.0)
    tl.store(largest + r, tl.max(tl.where(mask, v, -float("inf")), axis=1), mask=r < rows)
    tl.store(smallest + r, tl.min(tl.where(mask, v, float("inf")), axis=1), mask=r < rows)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        out = {"largest": x.new_empty(rows), "smallest": x.new_empty(rows)}
        block = triton.next_power_of_2(columns)
        extremes[(triton.cdiv(rows, 4),)](x, out["largest"], out["smallest"], rows, columns, R=4, BLOCK=block)
        return out
