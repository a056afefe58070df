"""Persistent programs with uneven shares: the last tile is that of a program in the middle of the grid.

task: tall_scale
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale(x, y, n, tiles, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    for tile in range(tl.program_id(0), tiles, PROGRAMS):
        i = tile * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + i, tl.load(x + i, mask=i < n) * 2.5, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        scale[(12,)](x, y, n, triton.cdiv(n, 4096), PROGRAMS=12, BLOCK=4096)
        return y
