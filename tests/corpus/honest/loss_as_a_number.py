"""A number read from a tensor of 32 bits is as exact as such a tensor.

task: loss_as_a_number
needs: cpu
"""

import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def errors(x, y, out, C, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    d = tl.load(x + r * C + i, mask=i < C, other=0.0) - tl.load(y + r * C + i, mask=i < C, other=0.0)
    tl.store(out + r, tl.sum(d * d, axis=0) / C)


@triton.jit
def mean(rows, out, R, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(rows + i, mask=i < R, other=0.0), axis=0) / R)


class ModelNew(nn.Module):
    def forward(self, x, y):
        assert x.dim() == 2
        assert x.shape == y.shape
        x, y = x.contiguous(), y.contiguous()
        R, C = x.shape
        rows, whole = x.new_empty(R), x.new_empty(())
        errors[(R,)](x, y, rows, C, BLOCK=triton.next_power_of_2(C))
        mean[(1,)](rows, whole, R, BLOCK=triton.next_power_of_2(R))
        return rows, whole.item()
