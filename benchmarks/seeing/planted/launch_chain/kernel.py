"""A launch for each of sixty steps, each a microsecond of work on four programs."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def damped_step(y_ptr, x_ptr, out_ptr, length, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < length
    y = tl.load(y_ptr + i, mask=inside)
    tl.store(out_ptr + i, 0.9 * y + tl.load(x_ptr + i, mask=inside), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, steps: int):
        super().__init__()
        self.steps = steps

    def forward(self, x):
        y = x
        for _ in range(self.steps):
            out = torch.empty_like(x)
            damped_step[(triton.cdiv(x.numel(), 1024),)](y, x, out, x.numel(), BLOCK=1024, num_warps=4)
            y = out
        return y
