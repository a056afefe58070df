"""Rows begin at odd addresses, so each of 31 loads per result is of two bytes per thread, and found in L1.

A warp asks for 64 contiguous bytes at a time where it could ask for 512.
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def window_max(x_ptr, y_ptr, width, results, WINDOW: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = x_ptr + row * width + tl.minimum(i, results - 1)
    best = tl.load(at)
    for shift in tl.static_range(1, WINDOW):
        best = tl.maximum(best, tl.load(at + shift))
    tl.store(y_ptr + row * results + i, best, mask=i < results)


class ModelNew(nn.Module):
    def __init__(self, window: int):
        super().__init__()
        self.window = window

    def forward(self, x):
        rows, width = x.shape
        results = width - self.window + 1
        y = torch.empty((rows, results), device=x.device, dtype=x.dtype)
        grid = (rows, triton.cdiv(results, 1024))
        window_max[grid](x, y, width, results, WINDOW=self.window, BLOCK=1024, num_warps=4)
        return y
