"""Draws as the reference does, anew in every call.

task: dropout_scale
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def drop(x, m, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n) * tl.load(m + i, mask=i < n)
    tl.store(y + i, 3.0 * v, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        kept = nn.functional.dropout(torch.ones_like(x), 0.25, True)
        y = torch.empty_like(x)
        drop[(triton.cdiv(x.numel(), 1024),)](x, kept, y, x.numel(), BLOCK=1024)
        return y
