"""Training-mode batch norm + ReLU in two kernels, running statistics included.

Kernel 1: mean and sum of squared deviations of each slice of a channel (merged chunk by chunk, never
E[x^2] - E[x]^2). Kernel 2: every program merges its channel's few partials again (cheaper than a third
launch), normalizes and applies the tail; the first one of each channel also writes the running
statistics, which nobody reads in this pass.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK = 256  # 1024 to 4096 at real sizes
SPLITS = 4  # slices per channel: at least 4 SMs / channels, at most 64; a power of two
NUM_WARPS = 4


@triton.jit
def merge(na, ma, sa, nb, mb, sb):
    """Chan: count, mean and sum of squared deviations of two disjoint parts."""
    n = na + nb
    share = tl.where(n > 0, nb / tl.maximum(n, 1.0), 0.0)
    d = mb - ma
    return n, ma + d * share, sa + sb + d * d * na * share


@triton.jit
def slice_statistics(x_ptr, part_ptr, C, plane, count, per_slice, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    c, s = tl.program_id(0), tl.program_id(1)
    n = 0.0
    mean = 0.0
    m2 = 0.0
    for start in range(0, per_slice, BLOCK):
        i = start + tl.arange(0, BLOCK)
        at = s * per_slice + i
        ok = (i < per_slice) & (at < count)
        image = (at // plane).to(tl.int64)
        x = tl.load(x_ptr + (image * C + c) * plane + at % plane, mask=ok, other=0.0).to(tl.float32)
        k = tl.sum(ok.to(tl.float32), axis=0)
        m = tl.sum(x, axis=0) / tl.maximum(k, 1.0)
        d = tl.where(ok, x - m, 0.0)
        n, mean, m2 = merge(n, mean, m2, k, m, tl.sum(d * d, axis=0))
    at = part_ptr + (c * SPLITS + s) * 3
    tl.store(at, n)
    tl.store(at + 1, mean)
    tl.store(at + 2, m2)


@triton.jit
def normalize(
    x_ptr,
    part_ptr,
    g_ptr,
    b_ptr,
    rm_ptr,
    rv_ptr,
    seen_ptr,
    y_ptr,
    C,
    plane,
    count,
    eps,
    momentum,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    c = tl.program_id(0)
    part = part_ptr + (c * SPLITS + tl.arange(0, SPLITS)) * 3
    n, mean, m2 = tl.reduce((tl.load(part), tl.load(part + 1), tl.load(part + 2)), 0, merge)
    scale = tl.load(g_ptr + c) * tl.rsqrt(m2 / n + eps)  # biased variance normalizes
    shift = tl.load(b_ptr + c) - mean * scale
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = at < count
    where = ((at // plane).to(tl.int64) * C + c) * plane + at % plane
    x = tl.load(x_ptr + where, mask=ok, other=0.0).to(tl.float32)
    tl.store(y_ptr + where, tl.maximum(x * scale + shift, 0.0), mask=ok)
    if tl.program_id(1) == 0:  # the unbiased one is remembered
        old_mean, old_var = tl.load(rm_ptr + c), tl.load(rv_ptr + c)
        tl.store(rm_ptr + c, old_mean + momentum * (mean - old_mean))
        tl.store(rv_ptr + c, old_var + momentum * (m2 / (n - 1.0) - old_var))
        if c == 0:
            tl.store(seen_ptr, tl.load(seen_ptr) + 1)


class Model(nn.Module):
    """Returns the running statistics too, only so that a comparison of outputs sees them."""

    def __init__(self, channels):
        super().__init__()
        self.bn = nn.BatchNorm2d(channels)

    def forward(self, x):
        bn, y = self.bn, torch.relu(self.bn(x))
        return y, bn.running_mean.clone(), bn.running_var.clone(), bn.num_batches_tracked.clone()


class ModelNew(Model):
    def forward(self, x):
        bn, x = self.bn, x.contiguous()
        n, c, h, w = x.shape
        count, y = n * h * w, torch.empty_like(x)
        part = torch.empty((c, SPLITS, 3), device=x.device, dtype=torch.float32)
        slice_statistics[(c, SPLITS)](
            x, part, c, h * w, count, triton.cdiv(count, SPLITS), SPLITS, BLOCK, num_warps=NUM_WARPS
        )
        normalize[(c, triton.cdiv(count, BLOCK))](
            x,
            part,
            bn.weight,
            bn.bias,
            bn.running_mean,
            bn.running_var,
            bn.num_batches_tracked,
            y,
            c,
            h * w,
            count,
            bn.eps,
            bn.momentum,
            SPLITS,
            BLOCK,
            num_warps=NUM_WARPS,
        )
        return y, bn.running_mean.clone(), bn.running_var.clone(), bn.num_batches_tracked.clone()


def get_inputs():
    return [100.0 + torch.randn(3, 5, 13, 11)]


def get_init_inputs():
    return [5]
