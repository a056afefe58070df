"""Rows go through scratch memory behind a barrier; a program is one block, as it says.

task: scale_shift
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def reversed_rows(x, w, b, s, y, C, BLOCK: tl.constexpr):
    row = tl.program_id(0) * C
    c = tl.arange(0, BLOCK)
    back = C - 1 - c
    tl.store(s + row + back, tl.load(x + row + c, mask=c < C), mask=c < C)
    tl.debug_barrier()
    v = tl.load(s + row + c, mask=c < C)
    tl.store(y + row + back, v * tl.load(w + back, mask=c < C) + tl.load(b + back, mask=c < C), mask=c < C)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        assert x.dim() == 2
        assert x.shape[1] == self.weight.shape[0]
        x = x.contiguous()
        rows, columns = x.shape
        y, block = torch.empty_like(x), triton.next_power_of_2(columns)
        s = torch.empty_like(x)
        reversed_rows[(rows,)](x, self.weight, self.bias, s, y, columns, BLOCK=block, num_ctas=1)
        return y
