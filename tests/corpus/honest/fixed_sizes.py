"""For the task's own sizes alone, as its domain states, as a translation of torch.compile's code is.

task: row_gain
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

DOMAIN = {
    "inputs": {"x": {"dtypes": ["float32"], "shape": [768, 2048], "layout": "contiguous"}},
    "arguments": {"features": {"only": 2048}},
}


@triton.jit
def gains(x, gain, y):
    column = tl.arange(0, 2048)
    by = tl.load(gain + column)
    for step in range(8):
        row = tl.program_id(0) * 64 + step * 8 + tl.arange(0, 8)
        at = row[:, None] * 2048 + column
        tl.store(y + at, tl.load(x + at) * by)


class Gained(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gain):
        y = torch.empty_like(x)
        gains[(12,)](x, gain, y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("forward only")


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(features))

    def forward(self, x):
        if x.shape != (768, 2048) or x.dtype != torch.float32 or not x.is_contiguous():
            raise ValueError("for 768 x 2048 contiguous float32 numbers")
        return Gained.apply(x, self.gain)
