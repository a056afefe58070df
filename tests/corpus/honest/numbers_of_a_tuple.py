"""Numbers are unpacked from a tuple, and used as any compiler uses them.

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
    one, three = 1, 3
    power = v
    for _ in range(one, three):
        power *= v
    tl.store(y + i, power + v * one, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        cubes[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
        return y
