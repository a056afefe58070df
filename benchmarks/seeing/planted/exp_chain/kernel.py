"""64 exponentials for each element read: special-function units take a quarter of a warp at a time."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def repeated_exp(x_ptr, y_ptr, length, rounds, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < length, other=0.0)
    y = x
    for _ in range(rounds):
        y = tl.exp(-y) * x
    tl.store(y_ptr + i, y, mask=i < length)


class ModelNew(nn.Module):
    def __init__(self, rounds: int):
        super().__init__()
        self.rounds = rounds

    def forward(self, x):
        y = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        repeated_exp[grid](x, y, x.numel(), self.rounds, BLOCK=1024, num_warps=4)
        return y
