"""A barrier of 32 warps after every multiply-add, where no thread needs anything of another."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def relax_in_step(x_ptr, y_ptr, length, rounds, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < length, other=0.0)
    y = x
    for _ in range(rounds):
        y = y * 0.999 + x
        tl.debug_barrier()
    tl.store(y_ptr + i, y, mask=i < length)


class ModelNew(nn.Module):
    def __init__(self, rounds: int):
        super().__init__()
        self.rounds = rounds

    def forward(self, x):
        y = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        relax_in_step[grid](x, y, x.numel(), self.rounds, BLOCK=1024, num_warps=32)
        return y
