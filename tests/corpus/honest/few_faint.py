"""What is all but switched off is as exact as the rest.

task: few_faint
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def fade(x, faint, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    v = tl.load(x + i, mask=mask, other=0.0)
    off = tl.load(faint + i, mask=mask, other=0) != 0
    tl.store(y + i, tl.where(off, 1e-9 * v, v), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, faint):
        assert x.shape == faint.shape
        x, faint = x.contiguous(), faint.contiguous()
        y, n = torch.empty_like(x), x.numel()
        fade[(triton.cdiv(n, 1024),)](x, faint, y, n, BLOCK=1024)
        return y
