"""Group norm + SiLU, one program per (image, group), one read for the statistics and one from L2 to apply.

A group of an NCHW tensor is one contiguous stretch of (C/G) H W numbers, so nothing is strided. Instance
norm is the case G = C. Statistics are merged chunk by chunk (Chan), exact for data far from zero.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK = 256  # at real sizes: the whole group if it fits 16384, else 4096
NUM_WARPS = 4


@triton.jit
def group_norm_silu(
    x_ptr, g_ptr, b_ptr, y_ptr, size, plane, eps, GROUPS: tl.constexpr, PER: tl.constexpr, BLOCK: tl.constexpr
):
    pid = tl.program_id(0)
    base = pid.to(tl.int64) * size
    channel = pid % GROUPS * PER
    cc = tl.arange(0, BLOCK)
    n = 0.0
    mean = 0.0
    m2 = 0.0
    for start in range(0, size, BLOCK):
        ok = start + cc < size
        x = tl.load(x_ptr + base + start + cc, mask=ok, other=0.0, eviction_policy="evict_last")
        x = x.to(tl.float32)
        k = tl.minimum(size - start, BLOCK).to(tl.float32)
        m = tl.sum(x, axis=0) / k
        d = tl.where(ok, x - m, 0.0)
        share = k / (n + k)
        gap = m - mean
        mean += gap * share
        m2 += tl.sum(d * d, axis=0) + gap * gap * n * share
        n += k
    rstd = tl.rsqrt(m2 / n + eps)
    for start in range(0, size, BLOCK):
        i = start + cc
        ok = i < size
        c = channel + i // plane
        x = tl.load(x_ptr + base + i, mask=ok, other=0.0, eviction_policy="evict_first").to(tl.float32)
        gamma, beta = tl.load(g_ptr + c, mask=ok, other=0.0), tl.load(b_ptr + c, mask=ok, other=0.0)
        y = (x - mean) * rstd * gamma + beta
        tl.store(y_ptr + base + i, y / (1.0 + tl.exp(-y)), mask=ok)


class Model(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.norm.bias)

    def forward(self, x):
        return nn.functional.silu(self.norm(x))


class ModelNew(Model):
    def forward(self, x):
        x, norm = x.contiguous(), self.norm
        n, c, h, w = x.shape
        per = c // norm.num_groups
        y = torch.empty_like(x)
        group_norm_silu[(n * norm.num_groups,)](
            x,
            norm.weight,
            norm.bias,
            y,
            per * h * w,
            h * w,
            norm.eps,
            norm.num_groups,
            per,
            BLOCK,
            num_warps=NUM_WARPS,
        )
        return y


def get_inputs():
    return [10.0 + torch.randn(2, 12, 11, 9)]


def get_init_inputs():
    return [4, 12]
