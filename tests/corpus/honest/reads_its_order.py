"""Gathers features in the order that a buffer holds.

task: shuffled_gain
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def shuffled(x, order, gain, y, C, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mask = c < C
    source = tl.load(order + c, mask=mask, other=0)
    value = tl.exp(0.1 * tl.load(x + row * C + source, mask=mask, other=0.0))
    tl.store(y + row * C + c, value * tl.load(gain + c, mask=mask, other=0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(features))
        self.register_buffer("order", torch.randperm(features))

    def forward(self, x):
        assert x.dim() == 2
        x = x.contiguous()
        rows, cols = x.shape
        assert cols == self.order.shape[0]
        y = torch.empty_like(x)
        block = triton.next_power_of_2(cols)
        shuffled[(rows,)](x, self.order, self.gain, y, cols, BLOCK=block)
        return y
