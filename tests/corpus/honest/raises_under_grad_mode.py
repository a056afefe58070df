"""Has no backward, and says so: a call that would record gradients raises an error.

task: scale_shift
needs: cpu
"""

import logging

import torch
import torch.nn as nn
import triton
import triton.language as tl

logger = logging.getLogger(__name__)


@triton.jit
def scale_shift(x, w, b, y, n, C: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    c = i % C
    v = tl.load(x + i, mask=mask)
    tl.store(y + i, v * tl.load(w + c) + tl.load(b + c), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        recorded = any(t.requires_grad for t in (x, self.weight, self.bias))
        if torch.is_grad_enabled() and recorded:
            raise RuntimeError("forward only: call it under torch.no_grad()")
        logger.debug("%d elements", x.numel())
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        scale_shift[(triton.cdiv(n, 1024),)](x, self.weight, self.bias, y, n, C=x.shape[-1], BLOCK=1024)
        return y
