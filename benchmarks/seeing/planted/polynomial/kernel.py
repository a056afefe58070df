"""512 multiply-adds for every four bytes: memory is done long before the arithmetic units."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def horner(x_ptr, y_ptr, length, rounds, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < length, other=0.0)
    y = tl.zeros((BLOCK,), tl.float32)
    for _ in range(rounds):
        for coefficient in tl.static_range(16):
            y = y * x + (coefficient - 7.5)
    tl.store(y_ptr + i, y, mask=i < length)


class ModelNew(nn.Module):
    def __init__(self, rounds: int):
        super().__init__()
        self.rounds = rounds

    def forward(self, x):
        y = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        horner[grid](x, y, x.numel(), self.rounds, BLOCK=1024, num_warps=4)
        return y
