"""1x1 convolution on NCHW + bias + hardswish as one batched matrix product, without a layout change.

y[n, :, pixel] = W x[n, :, pixel]: the pixels of one image are the contiguous side of both x and y, so
tiles of pixels load and store at full width as they are; image and pixel are flattened into one axis so
that small planes (7 x 7) fill tiles too.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK_OUT = 32  # 128 at real sizes; all output channels in one tile, where they fit, read x only once
BLOCK_PIXELS = 64  # 128
BLOCK_IN = 32
PRECISION = "bf16x6"  # fp32 grade; "bf16x3" or "tf32" where the reference runs TF32
NUM_WARPS = 4
NUM_STAGES = 3


@triton.jit
def pointwise(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    total,
    plane,
    C: tl.constexpr,
    CO: tl.constexpr,
    PRECISION: tl.constexpr,
    BO: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
):
    o = tl.program_id(0) * BO + tl.arange(0, BO)  # fastest axis: programs that share x run side by side
    pixel = tl.program_id(1).to(tl.int64) * BP + tl.arange(0, BP)
    inside = pixel < total
    image, at = pixel // plane, pixel % plane
    cc = tl.arange(0, BC)
    x_at = x_ptr + (image * C * plane + at)[None, :] + cc.to(tl.int64)[:, None] * plane
    w_at = w_ptr + o[:, None] * C + cc[None, :]
    acc = tl.zeros((BO, BP), tl.float32)
    for c0 in range(0, C, BC):
        live = c0 + cc < C
        x = tl.load(x_at, mask=live[:, None] & inside[None, :], other=0.0)
        w = tl.load(w_at, mask=(o < CO)[:, None] & live[None, :], other=0.0)
        acc = tl.dot(w, x, acc, input_precision=PRECISION)
        x_at += BC * plane.to(tl.int64)
        w_at += BC
    y = acc + tl.load(b_ptr + o, mask=o < CO, other=0.0)[:, None]
    y = y * tl.minimum(tl.maximum(y + 3.0, 0.0), 6.0) * (1.0 / 6.0)
    kept = (o < CO)[:, None] & inside[None, :]
    tl.store(y_ptr + (image * CO * plane + at)[None, :] + o.to(tl.int64)[:, None] * plane, y, mask=kept)


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x):
        return nn.functional.hardswish(self.conv(x))


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        n, c, h, w = x.shape
        co = self.conv.out_channels
        y = torch.empty((n, co, h, w), device=x.device, dtype=x.dtype)
        pointwise[(triton.cdiv(co, BLOCK_OUT), triton.cdiv(n * h * w, BLOCK_PIXELS))](
            x,
            self.conv.weight,
            self.conv.bias,
            y,
            n * h * w,
            h * w,
            c,
            co,
            PRECISION,
            BLOCK_OUT,
            BLOCK_PIXELS,
            BLOCK_IN,
            num_warps=NUM_WARPS,
            num_stages=NUM_STAGES,
        )
        return y


def get_inputs():
    return [torch.randn(3, 45, 7, 9)]


def get_init_inputs():
    return [45, 50]
