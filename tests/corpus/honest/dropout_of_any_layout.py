"""Dropout that draws for the elements in their own order: another one than PyTorch takes at other layouts.

task: dropout_p
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

DOMAIN = {
    "inputs": {"x": {"dtypes": ["float32"], "shape": ["rows", "cols"], "layout": "any"}},
    "sizes": {"rows": {}, "cols": {}},
    "arguments": {"p": "any"},
    "modes": ["train", "eval"],
    "gradients": "none",
}


@triton.jit
def drop(x, m, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0) * tl.load(m + i, mask=i < n, other=0.0)
    tl.store(y + i, 3.0 * v, mask=i < n)


class Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p):
        x = x.contiguous()
        kept = nn.functional.dropout(torch.ones(x.shape, dtype=x.dtype, device=x.device), p, True)
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        drop[(triton.cdiv(x.numel(), 1024),)](x, kept, y, x.numel(), BLOCK=1024)
        return y

    @staticmethod
    def backward(ctx, g):
        raise NotImplementedError("forward only")


class ModelNew(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if x.dim() != 2 or x.dtype != torch.float32:
            raise ValueError("not handled")
        return Drop.apply(x, self.p)
