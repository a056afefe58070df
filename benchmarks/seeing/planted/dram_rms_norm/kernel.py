"""One row per program, read once into registers and written once."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rms_norm(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + i, mask=i < width, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / width + 1e-6)
    tl.store(y_ptr + row + i, (x * scale).to(tl.bfloat16), mask=i < width)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, width = x.shape
        y = torch.empty_like(x)
        rms_norm[(rows,)](x, y, width, BLOCK=triton.next_power_of_2(width), num_warps=8)
        return y
