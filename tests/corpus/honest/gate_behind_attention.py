"""The library's attention where the reference writes it out; the rectifier and the gate are a kernel's.

task: gated_attention
needs: cpu
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def gated(x, gate, y, n, C, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    v = tl.load(x + i, mask=mask, other=0.0)
    clipped = tl.maximum(v, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y + i, clipped * tl.load(gate + i % C, mask=mask, other=0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gate = nn.Parameter(torch.randn(features))

    def forward(self, q, k, v):
        x = F.scaled_dot_product_attention(q, k, v, scale=0.25).contiguous()
        y = torch.empty_like(x)
        gated[(triton.cdiv(x.numel(), 512),)](x, self.gate, y, x.numel(), x.shape[-1], BLOCK=512)
        return y
