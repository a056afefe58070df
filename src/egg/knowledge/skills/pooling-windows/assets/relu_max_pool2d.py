"""Scale and shift + ReLU + 2-D max pooling in one kernel: the full-size activation is never written.

One program makes a block of outputs; the taps are unrolled, neighbouring windows meet in L1. Whatever is
pointwise in front of the pool is computed on the loaded taps, whatever follows on the result.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK = 128  # 512 to 1024 at real sizes
NUM_WARPS = 4


@triton.jit
def pool(
    x_ptr,
    scale_ptr,
    shift_ptr,
    y_ptr,
    total,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    OH: tl.constexpr,
    OW: tl.constexpr,
    K: tl.constexpr,
    S: tl.constexpr,
    P: tl.constexpr,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    ow, oh, plane = i % OW, i // OW % OH, i // (OW * OH)
    scale = tl.load(scale_ptr + plane % C, mask=inside, other=0.0)
    shift = tl.load(shift_ptr + plane % C, mask=inside, other=0.0)
    top, left = oh * S - P, ow * S - P
    source = x_ptr + plane.to(tl.int64) * (H * W)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    for kh in tl.static_range(K):
        r = top + kh * D
        live = inside & (r >= 0) & (r < H)
        for kw in tl.static_range(K):
            c = left + kw * D
            ok = live & (c >= 0) & (c < W)
            v = tl.load(source + r * W + c, mask=ok, other=0.0).to(tl.float32)
            v = tl.maximum(v * scale + shift, 0.0, propagate_nan=tl.PropagateNan.ALL)
            v = tl.where(ok, v, float("-inf"))  # after the chain: it maps padding to anything
            best = tl.maximum(best, v, propagate_nan=tl.PropagateNan.ALL)  # torch keeps NaN
    tl.store(y_ptr + i, best, mask=inside)


class Model(nn.Module):
    def __init__(self, channels, kernel, stride, padding, dilation):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.shift = nn.Parameter(torch.randn(channels))
        self.pool = nn.MaxPool2d(kernel, stride=stride, padding=padding, dilation=dilation)

    def forward(self, x):
        return self.pool(torch.relu(x * self.scale[:, None, None] + self.shift[:, None, None]))


class ModelNew(Model):
    def forward(self, x):
        x, p = x.contiguous(), self.pool
        n, c, h, w = x.shape
        reach = p.dilation * (p.kernel_size - 1) + 1
        oh, ow = (h + 2 * p.padding - reach) // p.stride + 1, (w + 2 * p.padding - reach) // p.stride + 1
        y = torch.empty((n, c, oh, ow), device=x.device, dtype=x.dtype)
        pool[(triton.cdiv(y.numel(), BLOCK),)](
            x,
            self.scale,
            self.shift,
            y,
            y.numel(),
            c,
            h,
            w,
            oh,
            ow,
            p.kernel_size,
            p.stride,
            p.padding,
            p.dilation,
            BLOCK,
            num_warps=NUM_WARPS,
        )
        return y


def get_inputs():
    return [torch.randn(2, 5, 17, 15)]


def get_init_inputs():
    return [5, 3, 2, 1, 1]
