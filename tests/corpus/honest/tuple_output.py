"""Two outputs from one pass over the input.

task: row_moments
needs: cpu
"""

import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def moments(x, mean_out, var_out, rows, C, R: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, BLOCK)
    mask = (r[:, None] < rows) & (c[None, :] < C)
    v = tl.load(x + r[:, None] * C + c[None, :], mask=mask, other=0.0)
    mean = tl.sum(v, axis=1) / C
    d = tl.where(mask, v - mean[:, None], 0.0)
    tl.store(mean_out + r, mean, mask=r < rows)
    tl.store(var_out + r, tl.sum(d * d, axis=1) / C, mask=r < rows)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        mean, var = x.new_empty(rows), x.new_empty(rows)
        block = triton.next_power_of_2(columns)
        moments[(triton.cdiv(rows, 4),)](x, mean, var, rows, columns, R=4, BLOCK=block)
        return mean, var
