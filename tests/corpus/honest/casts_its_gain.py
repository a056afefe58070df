"""Takes whole parts in the kernel where libraries are forbidden; PyTorch casts a weight, which rounds nothing off.

task: whole_gain
needs: cpu
policy: library_calls=forbid
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gained(x, w, y, n, C, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    whole = tl.where(v < 0, tl.ceil(v), tl.floor(v))
    tl.store(y + i, (whole * tl.load(w + i % C)).to(tl.float32), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))

    def forward(self, x):
        assert x.dtype == torch.float32
        assert x.shape[-1] == self.weight.shape[0]
        y, n = torch.empty_like(x, memory_format=torch.contiguous_format), x.numel()
        wide = self.weight.to(torch.float64)
        gained[(triton.cdiv(n, 1024),)](x.contiguous(), wide, y, n, x.shape[-1], BLOCK=1024)
        return y
