"""A loop multiplies the state that it carries in a variable, and stores all of them.

task: states
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def recurrence(x, w, hs, T, B: tl.constexpr, H: tl.constexpr):
    rows, cols = tl.arange(0, B)[:, None], tl.arange(0, H)[None, :]
    tile = rows * H + cols
    weight = tl.load(w + tl.arange(0, H)[:, None] * H + cols)
    h = tl.zeros((B, H), dtype=tl.float32)
    for t in range(T):
        h = tl.dot(h, weight, input_precision="ieee")
        nan = h != h
        h = tl.where(nan, h, tl.minimum(tl.maximum(h, -2.0), 2.0)) + tl.load(x + t * B * H + tile)
        tl.store(hs + (t + 1) * B * H + tile, h)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)

    def forward(self, x):
        x = x.contiguous()
        T, B, H = x.shape
        assert B == 16
        assert H in (16, 32, 64)
        assert self.weight.shape == (H, H)
        assert x.dtype == torch.float32
        hs = x.new_zeros(T + 1, B, H)
        recurrence[(1,)](x, self.weight, hs, T, B=B, H=H)
        return hs[1:].clone()
