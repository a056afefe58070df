"""Tensors of the constructor that are no buffers are moved where the input is.

task: scale_shift
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_shift(x, w, b, signs, y, n, C, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    c = i % C
    v = tl.load(x + i, mask=mask)
    tl.store(y + i, v * tl.load(w + c) * tl.load(signs) + tl.load(b + c), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))
        self.signs = torch.ones(1)

    def forward(self, x):
        x = x.contiguous()
        y, n = torch.empty_like(x), x.numel()
        signs = self.signs.to(x.device)
        scale_shift[(triton.cdiv(n, 1024),)](x, self.weight, self.bias, signs, y, n, x.shape[-1], BLOCK=1024)
        return y
