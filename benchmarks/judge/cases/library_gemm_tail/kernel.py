"""The product is left to the library; everything behind it is one kernel."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def gated_norm(x_ptr, z_ptr, bias_ptr, w_ptr, b_ptr, y_ptr, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    inside = c < width
    at = row * width + c
    z = tl.load(z_ptr + at, mask=inside, other=0.0) + tl.load(bias_ptr + c, mask=inside, other=0.0)
    v = tl.load(x_ptr + at, mask=inside, other=0.0) * tl.sigmoid(z)
    centred = tl.where(inside, v - tl.sum(v, axis=0) / width, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / width + eps)
    w = tl.load(w_ptr + c, mask=inside, other=0.0)
    b = tl.load(b_ptr + c, mask=inside, other=0.0)
    tl.store(y_ptr + at, centred * scale * w + b, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.gate = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        x = x.contiguous()
        rows, width = x.shape
        z = torch.mm(x, self.gate.weight.t())
        y = torch.empty_like(x)
        norm = self.norm
        gated_norm[(rows,)](
            x,
            z,
            self.gate.bias,
            norm.weight,
            norm.bias,
            y,
            width,
            norm.eps,
            BLOCK=triton.next_power_of_2(width),
            num_warps=4,
        )
        return y
