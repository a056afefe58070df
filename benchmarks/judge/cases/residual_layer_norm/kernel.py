"""Sum, statistics and scaling of a row from registers: two reads, two writes."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def residual_layer_norm(x_ptr, r_ptr, w_ptr, b_ptr, y_ptr, total_ptr, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    inside = c < width
    at = row * width + c
    v = tl.load(x_ptr + at, mask=inside, other=0.0) + tl.load(r_ptr + at, mask=inside, other=0.0)
    tl.store(total_ptr + at, v, mask=inside)
    centred = tl.where(inside, v - tl.sum(v, axis=0) / width, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / width + eps)
    w = tl.load(w_ptr + c, mask=inside, other=0.0)
    b = tl.load(b_ptr + c, mask=inside, other=0.0)
    tl.store(y_ptr + at, centred * scale * w + b, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        rows, width = x.shape
        y, total = torch.empty_like(x), torch.empty_like(x)
        norm = self.norm
        block = triton.next_power_of_2(width)
        residual_layer_norm[(rows,)](
            x, residual, norm.weight, norm.bias, y, total, width, norm.eps, BLOCK=block, num_warps=4
        )
        return y, total
