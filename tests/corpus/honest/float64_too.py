"""Computes in the dtype of its input, float64 among them.

task: cube
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

DOMAIN = {
    "inputs": {"x": {"dtypes": ["float32", "float64"], "shape": ["rows", "cols"], "layout": "any"}},
    "sizes": {"rows": {}, "cols": {}},
    "arguments": {},
    "modes": ["train", "eval"],
    "gradients": "none",
}


@triton.jit
def fwd(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(y + i, v * v * v + v, mask=i < n)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        n = x.numel()
        fwd[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
        return y

    @staticmethod
    def backward(ctx, g):
        raise NotImplementedError("forward only")


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dim() != 2 or x.dtype not in (torch.float32, torch.float64):
            raise ValueError("not handled")
        return Cube.apply(x.contiguous())
