"""A library matrix product where library calls are allowed, with the epilogue in an own kernel.

task: linear_gelu
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bias_gelu(h, b, y, n, C: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    v = tl.load(h + i, mask=mask, other=0.0) + tl.load(b + i % C)
    tl.store(y + i, 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476)), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        h = torch.mm(x, self.linear.weight.t())
        y = torch.empty_like(h)
        bias_gelu[(triton.cdiv(h.numel(), 1024),)](
            h, self.linear.bias, y, h.numel(), C=h.shape[1], BLOCK=1024
        )
        return y
