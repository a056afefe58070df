"""One program per row, the row in registers."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rms_norm(x_ptr, w_ptr, y_ptr, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    inside = c < width
    v = tl.load(x_ptr + row * width + c, mask=inside, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(v * v, axis=0) / width + eps)
    w = tl.load(w_ptr + c, mask=inside, other=0.0)
    tl.store(y_ptr + row * width + c, v * scale * w, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.RMSNorm(width, eps=1e-6)

    def forward(self, x):
        x = x.contiguous()
        rows, width = x.shape
        y = torch.empty_like(x)
        block = triton.next_power_of_2(width)
        rms_norm[(rows,)](x, self.norm.weight, y, width, self.norm.eps, BLOCK=block, num_warps=8)
        return y
