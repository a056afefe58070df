"""A scan of pieces in registers; the total so far is carried from one piece to the next."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def running_total(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    carry = 0.0
    for start in range(0, columns, BLOCK):
        inside = start + c < columns
        v = tl.load(x_ptr + row * columns + start + c, mask=inside, other=0.0)
        tl.store(y_ptr + row * columns + start + c, tl.cumsum(v, axis=0) + carry, mask=inside)
        carry += tl.sum(v, axis=0)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        block = min(4096, triton.next_power_of_2(columns))
        running_total[(rows,)](x, y, columns, BLOCK=block, num_warps=8)
        return y
