"""Casts to floats of 8 bits, one rounding each.

task: rows_cast_to_eight_bits
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cast(x, order, y, R, C, BLOCK: tl.constexpr):
    at = tl.load(order + tl.program_id(0))
    at = tl.where(at < 0, at + R, at)
    i = tl.arange(0, BLOCK)
    value = tl.load(x + at * C + i, mask=i < C, other=0.0)
    tl.store(y + tl.program_id(0) * C + i, value.to(tl.float8e4nv), mask=i < C)


class ModelNew(nn.Module):
    def forward(self, x, order):
        assert x.dtype == torch.float32
        assert x.dim() == 2
        assert order.dim() == 1
        x, order = x.contiguous(), order.contiguous()
        y = torch.empty((order.shape[0], x.shape[1]), dtype=torch.float8_e4m3fn, device=x.device)
        cast[(order.shape[0],)](x, order, y, *x.shape, BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
