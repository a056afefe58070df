"""The exchange goes through shared memory, and the 32 threads of a warp read it 128 bytes apart: one bank."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def exchange_rounds(x_ptr, y_ptr, rounds, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + i)
    source = (i // 4) % 32 * 32 + i % 4 * 8 + i // 128
    y = x
    for _ in range(rounds):
        y = 0.5 * tl.gather(y, source, axis=0) + x
    tl.store(y_ptr + tl.program_id(0) * BLOCK + i, y)


class ModelNew(nn.Module):
    def __init__(self, rounds: int):
        super().__init__()
        self.rounds = rounds

    def forward(self, x):
        y = torch.empty_like(x)
        exchange_rounds[(x.numel() // 1024,)](x, y, self.rounds, BLOCK=1024, num_warps=4)
        return y
