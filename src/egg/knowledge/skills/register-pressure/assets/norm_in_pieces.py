"""Residual + layer norm of rows too long for registers: statistics in a first pass, the result in a second.

The second pass reads the row from L2 (it was read moments ago), so memory sees it once. Sums of x - shift
and of its square, with the row's first element as shift, avoid the cancellation of plain E[x^2] - E[x]^2.
"""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 1024
NUM_WARPS = 4


@triton.jit
def add_norm(x_ptr, res_ptr, w_ptr, b_ptr, y_ptr, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    c = tl.arange(0, BLOCK)
    shift = tl.load(x_ptr + row).to(tl.float32) + tl.load(res_ptr + row).to(tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        inside = start + c < width
        at = row + start + c
        x = tl.load(x_ptr + at, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        x += tl.load(res_ptr + at, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        d = tl.where(inside, x - shift, 0.0)
        total += d
        squares += d * d
    mean = tl.sum(total, axis=0) / width
    variance = tl.sum(squares, axis=0) / width - mean * mean
    scale = tl.rsqrt(variance + eps)
    for start in range(0, width, BLOCK):
        inside = start + c < width
        at = row + start + c
        x = tl.load(x_ptr + at, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        x += tl.load(res_ptr + at, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        w = tl.load(w_ptr + start + c, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + start + c, mask=inside, other=0.0).to(tl.float32)
        y = (x - shift - mean) * scale * w + b
        tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=inside)


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x, residual):
        return self.norm(x + residual)


class ModelNew(Model):
    def forward(self, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        width = x.shape[-1]
        y = torch.empty_like(x)
        add_norm[(x.numel() // width,)](
            x, residual, self.norm.weight, self.norm.bias, y, width, self.norm.eps,
            BLOCK=BLOCK, num_warps=NUM_WARPS,
        )  # fmt: skip
        return y


def get_inputs():
    return [torch.randn(9, 3500) + 5.0, torch.randn(9, 3500)]


def get_init_inputs():
    return [3500]
