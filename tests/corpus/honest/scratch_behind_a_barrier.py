"""A row goes through scratch memory and comes back reversed, twice, behind a barrier each time.

task: scale_shift
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def through_scratch(x, w, b, s, y, C, BLOCK: tl.constexpr):
    row = tl.program_id(0) * C
    c = tl.arange(0, BLOCK)
    tl.store(s + row + (C - 1 - c), tl.load(x + row + c, mask=c < C), mask=c < C)
    tl.debug_barrier()
    v = tl.load(s + row + (C - 1 - c), mask=c < C)
    tl.store(y + row + c, v * tl.load(w + c, mask=c < C) + tl.load(b + c, mask=c < C), mask=c < C)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = x.contiguous()
        s, y = torch.empty_like(x), torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        through_scratch[(x.shape[0],)](x, self.weight, self.bias, s, y, x.shape[1], BLOCK=block)
        return y
