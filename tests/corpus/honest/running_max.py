"""A running maximum as one scan, which takes as many steps in a sorted row as in any other.

task: running_max
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def larger(a, b):
    return tl.where((a > b) | (a != a), a, b)


@triton.jit
def running(x, y, C, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + r * C + c, mask=c < C, other=float("-inf"))
    tl.store(y + r * C + c, tl.associative_scan(v, 0, larger), mask=c < C)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dim() == 2
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, cols = x.shape
        running[(rows,)](x, y, cols, BLOCK=triton.next_power_of_2(cols))
        return y
