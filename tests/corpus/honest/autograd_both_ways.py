"""Forward and backward are kernels; the incoming gradient is made dense.

task: scale_shift
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_shift(x, w, b, y, n, C, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    c = i % C
    v = tl.load(x + i, mask=mask)
    tl.store(y + i, v * tl.load(w + c) + tl.load(b + c), mask=mask)


@triton.jit
def back(x, w, g, gx, gw, gb, R, C, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = c < C
    scale = tl.load(w + c, mask=mask, other=0.0)
    by_weight = tl.zeros([BLOCK], tl.float32)
    by_bias = tl.zeros([BLOCK], tl.float32)
    for r in range(R):
        v = tl.load(g + r * C + c, mask=mask, other=0.0)
        tl.store(gx + r * C + c, v * scale, mask=mask)
        by_weight += v * tl.load(x + r * C + c, mask=mask, other=0.0)
        by_bias += v
    tl.store(gw + c, by_weight, mask=mask)
    tl.store(gb + c, by_bias, mask=mask)


class ScaleShift(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        x = x.contiguous()
        ctx.save_for_backward(x, weight)
        y = torch.empty_like(x)
        n = x.numel()
        scale_shift[(triton.cdiv(n, 1024),)](x, weight, bias, y, n, x.shape[-1], BLOCK=1024)
        return y

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        g = g.contiguous()
        gx, gw, gb = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
        C = x.shape[-1]
        back[(triton.cdiv(C, 256),)](x, weight, g, gx, gw, gb, x.numel() // C, C, BLOCK=256)
        return gx, gw, gb


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        assert x.shape[-1] == self.weight.shape[0]
        return ScaleShift.apply(x, self.weight, self.bias)
