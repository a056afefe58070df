"""Depthwise 3x3 convolution (stride 1) + SiLU, channels first, walking down the rows of a plane.

A program owns a strip of ROWS x COLUMNS of one plane. Each input row is loaded once (three shifted
vectors, two of them from L1) and feeds the three output rows it belongs to through rolling sums: three
loads per output instead of nine, and nine weights that stay in registers.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

ROWS = 8  # 2 halo rows per strip are read twice: at real sizes 16 (costs 12%) or 32 (6%)
COLUMNS = 64  # next power of two of the width, up to 256
NUM_WARPS = 2


@triton.jit
def depthwise3x3(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    OH: tl.constexpr,
    OW: tl.constexpr,
    P: tl.constexpr,
    ROWS: tl.constexpr,
    BW: tl.constexpr,
):
    plane = tl.program_id(2).to(tl.int64)
    w = w_ptr + plane % C * 9
    w0, w1, w2 = tl.load(w), tl.load(w + 1), tl.load(w + 2)
    w3, w4, w5 = tl.load(w + 3), tl.load(w + 4), tl.load(w + 5)
    w6, w7, w8 = tl.load(w + 6), tl.load(w + 7), tl.load(w + 8)
    bias = tl.load(b_ptr + plane % C)
    first = tl.program_id(1) * ROWS
    column = tl.program_id(0) * BW + tl.arange(0, BW)
    left = column - P
    inside0 = (left >= 0) & (left < W)
    inside1 = (left + 1 >= 0) & (left + 1 < W)
    inside2 = (left + 2 >= 0) & (left + 2 < W)
    source = x_ptr + plane * (H * W)
    target = y_ptr + plane * (OH * OW)
    top = tl.zeros((BW,), tl.float32)  # output row of which one input row has been seen
    middle = tl.zeros((BW,), tl.float32)  # ... two
    for step in range(ROWS + 2):
        i = (first + step - P) * W + left  # with the column inside, 0 <= i < H W says that the row is
        a = tl.load(source + i, mask=inside0 & (i >= 0) & (i < H * W), other=0.0).to(tl.float32)
        b = tl.load(source + i + 1, mask=inside1 & (i + 1 >= 0) & (i + 1 < H * W), other=0.0).to(tl.float32)
        c = tl.load(source + i + 2, mask=inside2 & (i + 2 >= 0) & (i + 2 < H * W), other=0.0).to(tl.float32)
        done = middle + a * w6 + b * w7 + c * w8
        middle = top + a * w3 + b * w4 + c * w5
        top = a * w0 + b * w1 + c * w2
        y = done + bias
        y = y / (1.0 + tl.exp(-y))
        at = (first + step - 2) * OW + column
        tl.store(target + at, y, mask=(column < OW) & (at < OH * OW) & (step >= 2))


class Model(nn.Module):
    def __init__(self, channels, padding):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=padding, groups=channels)

    def forward(self, x):
        return nn.functional.silu(self.conv(x))


class ModelNew(Model):
    def forward(self, x):
        x, p = x.contiguous(), self.conv.padding[0]
        n, c, h, w = x.shape
        oh, ow = h + 2 * p - 2, w + 2 * p - 2
        y = torch.empty((n, c, oh, ow), device=x.device, dtype=x.dtype)
        depthwise3x3[(triton.cdiv(ow, COLUMNS), triton.cdiv(oh, ROWS), n * c)](
            x, self.conv.weight, self.conv.bias, y, c, h, w, oh, ow, p, ROWS, COLUMNS, num_warps=NUM_WARPS
        )
        return y


def get_inputs():
    return [torch.randn(2, 2, 13, 37)]


def get_init_inputs():
    return [2, 1]
