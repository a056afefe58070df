"""The result in fp32, and a copy of it in bf16.

task: gate_and_copy
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gate(x, y, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    h = tl.load(x + i, mask=i < n, other=0.0).to(tl.float32)
    v = h / (1.0 + tl.exp(-h))
    tl.store(y + i, v, mask=i < n)
    tl.store(z + i, v, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dtype == torch.bfloat16
        x, n = x.contiguous(), x.numel()
        y, z = torch.empty_like(x, dtype=torch.float32), torch.empty_like(x)
        gate[(triton.cdiv(n, 1024),)](x, y, z, n, BLOCK=1024)
        return y, z
