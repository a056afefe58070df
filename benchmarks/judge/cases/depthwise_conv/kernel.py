"""Direct: a program owns a run of one plane; its nine shifted readings share cache lines."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def depthwise(x_ptr, w_ptr, b_ptr, y_ptr, channels, height, width, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    channel = program % channels
    base = program.to(tl.int64) * height * width
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < height * width
    row, column = i // width, i % width
    total = tl.zeros((BLOCK,), tl.float32) + tl.load(b_ptr + channel)
    for r in tl.static_range(3):
        for s in tl.static_range(3):
            h, w = row + (r - 1), column + (s - 1)
            valid = inside & (h >= 0) & (h < height) & (w >= 0) & (w < width)
            v = tl.load(x_ptr + base + h * width + w, mask=valid, other=0.0)
            total += v * tl.load(w_ptr + channel * 9 + r * 3 + s)
    tl.store(y_ptr + base + i, tl.minimum(tl.maximum(total, 0.0), 6.0), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size=3, padding=1, groups=channels)

    def forward(self, x):
        x = x.contiguous()
        batch, channels, height, width = x.shape
        y = torch.empty_like(x)
        grid = (batch * channels, triton.cdiv(height * width, 1024))
        depthwise[grid](
            x, self.conv.weight, self.conv.bias, y, channels, height, width, BLOCK=1024, num_warps=4
        )
        return y
