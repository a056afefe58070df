"""Gradients that a loss does not reach are zeros; second derivatives are lost, and the verdict says so.

task: two_powers
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
def powers(x, y, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(y + i, v * v, mask=i < n)
    tl.store(z + i, v * v * v, mask=i < n)


@triton.jit
def back(x, g, h, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    a, b = tl.load(g + i, mask=i < n, other=0.0), tl.load(h + i, mask=i < n, other=0.0)
    tl.store(out + i, a * 2.0 * v + b * 3.0 * v * v, mask=i < n)


class Powers(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        ctx.save_for_backward(x)
        y, z = torch.empty_like(x), torch.empty_like(x)
        n = x.numel()
        powers[(triton.cdiv(n, 256),)](x, y, z, n, BLOCK=256)
        return y, z

    @staticmethod
    def backward(ctx, g, h):
        (x,) = ctx.saved_tensors
        g, h = g.contiguous(), h.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        back[(triton.cdiv(n, 256),)](x, g, h, out, n, BLOCK=256)
        return out


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dim() != 2 or x.dtype != torch.float32:
            raise ValueError("a matrix of float32")
        return Powers.apply(x)
