"""Every row over its largest magnitude, by one quotient: right as long as numbers are.

task: unit_rows
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def unit(x, y, C, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + r * C + c, mask=c < C, other=0.0)
    m = tl.max(tl.abs(v), axis=0)
    tl.store(y + r * C + c, v / m, mask=c < C)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dim() == 2
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, cols = x.shape
        unit[(rows,)](x, y, cols, BLOCK=triton.next_power_of_2(cols))
        return y
