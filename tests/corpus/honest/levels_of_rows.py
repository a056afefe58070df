"""Levels between two integers are rounded to the even one, as the reference rounds.

task: row_levels
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def level(x, q, y, C, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + r * C + i, mask=i < C, other=0.0).to(tl.float32)
    tl.store(q + r, libdevice.rint(32.0 * tl.max(tl.abs(v))).to(tl.int32))
    tl.store(y + r * C + i, 0.5 * v, mask=i < C)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dtype == torch.bfloat16
        assert x.dim() == 2
        x = x.contiguous()
        rows, columns = x.shape
        q, y = x.new_empty(rows, dtype=torch.int32), torch.empty_like(x)
        level[(rows,)](x, q, y, columns, BLOCK=triton.next_power_of_2(columns))
        return q, y
