"""A whole row stays in registers: one read, one write."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def wide_softmax(x_ptr, y_ptr, columns, temperature, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    inside = c < columns
    v = tl.load(x_ptr + row * columns + c, mask=inside, other=float("-inf")) / temperature
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(y_ptr + row * columns + c, e / tl.sum(e, axis=0), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, temperature: float):
        super().__init__()
        self.temperature = temperature

    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        warps = 32 if block >= 16384 else 8
        wide_softmax[(rows,)](x, y, columns, self.temperature, BLOCK=block, num_warps=warps)
        return y
