"""Made for columns that are a multiple of 128, and says so with an error at any others.

task: tall_scale
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale(x, y, C, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for c0 in range(0, C, BLOCK):
        at = row * C + c0 + tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at) * 2.5)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.is_cuda
        assert x.is_contiguous()
        assert x.shape[1] % 128 == 0, "columns must be a multiple of 128"
        y = torch.empty_like(x)
        scale[(x.shape[0],)](x, y, x.shape[1], BLOCK=128)
        return y
