"""Saves its input for backward: PyTorch raises where a caller overwrote it. First derivatives alone.

task: sigmoid
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
    "arguments": {},
    "modes": ["train", "eval"],
    "gradients": "backward",
}


@triton.jit
def logistic(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(y + i, 1.0 / (1.0 + tl.exp(-v)), mask=i < n)


@triton.jit
def back(x, g, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    s = 1.0 / (1.0 + tl.exp(-tl.load(x + i, mask=i < n, other=0.0)))
    tl.store(out + i, tl.load(g + i, mask=i < n, other=0.0) * s * (1.0 - s), mask=i < n)


class Logistic(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        ctx.save_for_backward(x)
        y = torch.empty_like(x)
        n = x.numel()
        logistic[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
        return y

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        g = g.contiguous()
        out = torch.empty_like(g)
        n = g.numel()
        back[(triton.cdiv(n, 256),)](x, g, out, n, BLOCK=256)
        return out


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dim() != 2 or x.dtype != torch.float32:
            raise ValueError("a matrix of float32")
        return Logistic.apply(x)
