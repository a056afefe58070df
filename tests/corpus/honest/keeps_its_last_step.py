"""Rows times a matrix, of which the task keeps the last ones and what they gave.

task: last_step
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_times(x, w, y, given, made, C, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mask = c < C
    mine = tl.load(x + row * C + c, mask=mask, other=0.0)
    total = tl.zeros([BLOCK], tl.float32)
    for k in range(C):
        total += tl.load(x + row * C + k) * tl.load(w + k * C + c, mask=mask, other=0.0)
    tl.store(y + row * C + c, total, mask=mask)
    tl.store(given + row * C + c, mine, mask=mask)
    tl.store(made + row * C + c, total, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features) / features**0.5)
        self.register_buffer("given", torch.zeros(8, features))
        self.register_buffer("made", torch.zeros(8, features))

    def forward(self, x):
        assert x.shape == self.given.shape
        x = x.contiguous()
        rows, cols = x.shape
        y = torch.empty_like(x)
        block = triton.next_power_of_2(cols)
        row_times[(rows,)](x, self.weight.contiguous(), y, self.given, self.made, cols, BLOCK=block)
        return y
