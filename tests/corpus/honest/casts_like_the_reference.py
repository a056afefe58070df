"""Makes integers of floats as the reference does: of those that do not fit neither has a defined answer.

task: to_cents
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cents(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(y + i, (v * 100).to(tl.int32), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dtype == torch.float32
        x = x.contiguous()
        y = torch.empty_like(x, dtype=torch.int32)
        cents[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
