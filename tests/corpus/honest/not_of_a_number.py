"""`not` of a number chooses between two branches.

task: cube
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cubes(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    if not (n % 32 != 0):
        tl.store(y + i, v * v * v + v, mask=i < n)
    else:
        tl.store(y + i, (v * v + 1) * v, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        cubes[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
        return y
