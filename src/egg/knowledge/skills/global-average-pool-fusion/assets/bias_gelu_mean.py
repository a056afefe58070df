"""Bias + GELU + global average pooling: the activation is consumed where it is made, only N x C is written.

What a convolution or product leaves is read once; a 2-D tile sums elementwise over the loop and is reduced
across lanes once, at the end. In a convolution's epilogue the same sum is per tile, and needs a second
small kernel (or atomics) to join the tiles of an image.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK_PLANES = 4
BLOCK_PIXELS = 64  # 512 to 1024 at real sizes
NUM_WARPS = 4


@triton.jit
def bias_gelu_mean(x_ptr, b_ptr, y_ptr, planes, C: tl.constexpr, size, BN: tl.constexpr, BP: tl.constexpr):
    plane = tl.program_id(0) * BN + tl.arange(0, BN)
    live = plane < planes
    bias = tl.load(b_ptr + plane % C, mask=live, other=0.0)
    pp = tl.arange(0, BP)
    rows = x_ptr + plane.to(tl.int64)[:, None] * size
    acc = tl.zeros((BN, BP), tl.float32)
    for start in range(0, size, BP):
        p = start + pp
        ok = live[:, None] & (p < size)[None, :]
        v = tl.load(rows + p[None, :], mask=ok, other=0.0).to(tl.float32) + bias[:, None]
        v = 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))
        acc += tl.where(ok, v, 0.0)  # masked lanes hold gelu(bias), not 0
    tl.store(y_ptr + plane, tl.sum(acc, axis=1) / size, mask=live)


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x):
        return nn.functional.gelu(x + self.bias).mean(dim=(2, 3))


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        n, c, h, w = x.shape
        y = torch.empty((n, c), device=x.device, dtype=x.dtype)
        bias_gelu_mean[(triton.cdiv(n * c, BLOCK_PLANES),)](
            x, self.bias, y, n * c, c, h * w, BLOCK_PLANES, BLOCK_PIXELS, num_warps=NUM_WARPS
        )
        return y


def get_inputs():
    return [torch.randn(3, 7, 13, 11)]


def get_init_inputs():
    return [7]
