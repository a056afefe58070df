"""One warp per walker, and every load needs the one before: SMs are full of warps, and all of them wait."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def walk(successor_ptr, start_ptr, y_ptr, steps):
    walker = tl.program_id(0)
    at = tl.load(start_ptr + walker)
    for _ in range(steps):
        at = tl.load(successor_ptr + at)
    tl.store(y_ptr + walker, at)


class ModelNew(nn.Module):
    def __init__(self, steps: int):
        super().__init__()
        self.steps = steps

    def forward(self, successor, start):
        y = torch.empty_like(start)
        walk[(start.numel(),)](successor, start, y, self.steps, num_warps=1)
        return y
