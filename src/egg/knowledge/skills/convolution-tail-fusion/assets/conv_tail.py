"""A library convolution, and everything behind it in one kernel: bias, tanh, scale, second bias, max pool.

The library gets the convolution without its bias (as a separate pass that would cost one more read and
write of the largest tensor); the tail reads the convolution's result once and writes only the pooled one.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK = 128  # 512 to 1024 at real sizes
NUM_WARPS = 4


@triton.jit
def tail(
    x_ptr,
    conv_bias_ptr,
    bias_ptr,
    y_ptr,
    total,
    scale,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    OH: tl.constexpr,
    OW: tl.constexpr,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = i < total
    ow, oh, plane = i % OW, i // OW % OH, i // (OW * OH)
    before = tl.load(conv_bias_ptr + plane % C, mask=ok, other=0.0)
    after = tl.load(bias_ptr + plane % C, mask=ok, other=0.0)
    at = x_ptr + plane.to(tl.int64) * (H * W) + oh * (K * W) + ow * K
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    for kh in tl.static_range(K):
        for kw in tl.static_range(K):
            v = tl.load(at + kh * W + kw, mask=ok, other=0.0).to(tl.float32) + before
            e = tl.exp(-2.0 * tl.abs(v))  # never overflows
            t = (1.0 - e) / (1.0 + e)
            v = tl.where(v < 0, -t, t) * scale + after
            best = tl.maximum(best, v, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + i, best, mask=ok)


class Model(nn.Module):
    def __init__(self, inputs, outputs, kernel, scale, pool):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel)
        self.bias = nn.Parameter(torch.randn(outputs, 1, 1))
        self.pool = nn.MaxPool2d(pool)
        self.scale = scale

    def forward(self, x):
        return self.pool(torch.tanh(self.conv(x)) * self.scale + self.bias)


class ModelNew(Model):
    def forward(self, x):
        x = nn.functional.conv2d(x, self.conv.weight)
        n, c, h, w = x.shape
        k = self.pool.kernel_size
        y = torch.empty((n, c, h // k, w // k), device=x.device, dtype=x.dtype)
        tail[(triton.cdiv(y.numel(), BLOCK),)](
            x.contiguous(),
            self.conv.bias,
            self.bias,
            y,
            y.numel(),
            self.scale,
            c,
            h,
            w,
            h // k,
            w // k,
            k,
            BLOCK,
            num_warps=NUM_WARPS,
        )
        return y


def get_inputs():
    return [torch.randn(2, 3, 17, 15)]


def get_init_inputs():
    return [3, 7, 3, 2.0, 2]
