"""One program per group, which lies in one piece: block-wise Welford, then scale, shift and SiLU.

The second reading comes from the L2 cache.
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def group_norm_silu(x_ptr, w_ptr, b_ptr, y_ptr, groups, per_group, plane, size, eps, BLOCK: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    first_channel = (program % groups) * per_group
    base = program * size
    i = tl.arange(0, BLOCK)
    count = 0.0
    mean = 0.0
    m2 = 0.0
    for start in range(0, size, BLOCK):
        inside = start + i < size
        v = tl.load(x_ptr + base + start + i, mask=inside, other=0.0)
        n = tl.sum(inside.to(tl.float32), axis=0)
        block_mean = tl.sum(v, axis=0) / n
        d = tl.where(inside, v - block_mean, 0.0)
        delta = block_mean - mean
        total = count + n
        mean += delta * (n / total)
        m2 += tl.sum(d * d, axis=0) + delta * delta * (count * n / total)
        count = total
    scale = 1.0 / tl.sqrt(m2 / count + eps)
    for start in range(0, size, BLOCK):
        inside = start + i < size
        v = tl.load(x_ptr + base + start + i, mask=inside, other=0.0)
        channel = first_channel + (start + i) // plane
        w = tl.load(w_ptr + channel, mask=inside, other=0.0)
        b = tl.load(b_ptr + channel, mask=inside, other=0.0)
        z = (v - mean) * scale * w + b
        tl.store(y_ptr + base + start + i, z * tl.sigmoid(z), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, groups: int, channels: int):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        x = x.contiguous()
        norm = self.norm
        batch, channels = x.shape[0], x.shape[1]
        plane = x.numel() // (batch * channels)
        per_group = channels // norm.num_groups
        y = torch.empty_like(x)
        group_norm_silu[(batch * norm.num_groups,)](
            x,
            norm.weight,
            norm.bias,
            y,
            norm.num_groups,
            per_group,
            plane,
            per_group * plane,
            norm.eps,
            BLOCK=4096,
            num_warps=8,
        )
        return y
