"""Asks the part for its mode.

task: switched_part
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def squared(x, y, n, TRAIN: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(y + i, v * v * 2.0 if TRAIN else v * v + 1.0, mask=i < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = nn.Identity()

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        squared[(triton.cdiv(n, 256),)](x, y, n, TRAIN=self.part.training, BLOCK=256)
        return y
