"""Sixteen programs share a vector of 256 MB; the other 116 SMs of an H200 have nothing to do."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def double_by_few(x_ptr, y_ptr, length, BLOCK: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(length, BLOCK), tl.num_programs(0)):
        i = block * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + i, 2 * tl.load(x_ptr + i, mask=i < length), mask=i < length)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        double_by_few[(16,)](x, y, x.numel(), BLOCK=8192, num_warps=16)
        return y
