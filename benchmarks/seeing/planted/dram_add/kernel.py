"""Every byte once, 16 at a time, by many programs: nothing is left but the memory bus."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add(a_ptr, b_ptr, y_ptr, length, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < length
    tl.store(y_ptr + i, tl.load(a_ptr + i, mask=inside) + tl.load(b_ptr + i, mask=inside), mask=inside)


class ModelNew(nn.Module):
    def forward(self, a, b):
        y = torch.empty_like(a)
        add[(triton.cdiv(a.numel(), 2048),)](a, b, y, a.numel(), BLOCK=2048, num_warps=8)
        return y
