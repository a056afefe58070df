"""Neighbouring threads read 128 bytes apart: a whole sector moves for every four bytes."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def pick(x_ptr, y_ptr, length, STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < length
    tl.store(y_ptr + i, tl.load(x_ptr + i * STRIDE, mask=inside), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, stride: int):
        super().__init__()
        self.stride = stride

    def forward(self, x):
        length = triton.cdiv(x.numel(), self.stride)
        y = torch.empty(length, device=x.device, dtype=x.dtype)
        pick[(triton.cdiv(length, 1024),)](x, y, length, STRIDE=self.stride, BLOCK=1024, num_warps=4)
        return y
