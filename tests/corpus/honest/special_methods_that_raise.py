"""A container of the file's own ends its iteration by an exception, and says what it does not hold.

task: cube
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cube(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(y + i, v * v * v + v, mask=i < n)


class Blocks:
    def __init__(self, *sizes):
        self.sizes = sizes

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, place):
        if place >= len(self.sizes):
            raise IndexError(place)
        return self.sizes[place]


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = Blocks(256, 512, 1024)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        block = max(size for size in self.blocks)
        cube[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), BLOCK=block)
        return y
