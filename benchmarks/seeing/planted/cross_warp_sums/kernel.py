"""A sum over 32 warps with one element per thread: each round is two barriers and a handful of additions."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def centred_rounds(x_ptr, y_ptr, rounds, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    y = x
    for _ in range(rounds):
        y = 0.5 * (y - tl.sum(y, axis=0) / BLOCK) + x
    tl.store(y_ptr + i, y)


class ModelNew(nn.Module):
    def __init__(self, rounds: int):
        super().__init__()
        self.rounds = rounds

    def forward(self, x):
        y = torch.empty_like(x)
        centred_rounds[(x.shape[0],)](x, y, self.rounds, BLOCK=x.shape[1], num_warps=32)
        return y
