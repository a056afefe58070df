"""Three kernels: Welford over pieces of the batch, their combination per channel (which also updates the
running statistics), and one pass that normalises."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def partial_statistics(x_ptr, part_ptr, batch, channels, plane, images, BLOCK: tl.constexpr):
    channel = tl.program_id(0)
    piece = tl.program_id(1)
    i = tl.arange(0, BLOCK)
    first = piece * images
    last = tl.minimum(first + images, batch)
    size = (last - first) * plane
    count = 0.0
    mean = 0.0
    m2 = 0.0
    for start in range(0, size, BLOCK):
        at = start + i
        inside = at < size
        image = (first + at // plane).to(tl.int64)
        v = tl.load(x_ptr + (image * channels + channel) * plane + at % plane, mask=inside, other=0.0)
        n = tl.sum(inside.to(tl.float32), axis=0)
        block_mean = tl.sum(v, axis=0) / n
        d = tl.where(inside, v - block_mean, 0.0)
        delta = block_mean - mean
        total = count + n
        mean += delta * (n / total)
        m2 += tl.sum(d * d, axis=0) + delta * delta * (count * n / total)
        count = total
    out = part_ptr + (channel * tl.num_programs(1) + piece) * 3
    tl.store(out, count)
    tl.store(out + 1, mean)
    tl.store(out + 2, m2)


@triton.jit
def combine_statistics(
    part_ptr,
    mean_ptr,
    scale_ptr,
    running_mean,
    running_var,
    tracked,
    pieces,
    eps,
    momentum,
    BLOCK: tl.constexpr,
):
    channel = tl.program_id(0)
    p = tl.arange(0, BLOCK)
    at = part_ptr + (channel * pieces + p) * 3
    n = tl.load(at, mask=p < pieces, other=0.0)
    means = tl.load(at + 1, mask=p < pieces, other=0.0)
    m2s = tl.load(at + 2, mask=p < pieces, other=0.0)
    count = tl.sum(n, axis=0)
    mean = tl.sum(n * means, axis=0) / count
    d = means - mean
    m2 = tl.sum(m2s + n * d * d, axis=0)
    tl.store(mean_ptr + channel, mean)
    tl.store(scale_ptr + channel, 1.0 / tl.sqrt(m2 / count + eps))
    old_mean, old_var = tl.load(running_mean + channel), tl.load(running_var + channel)
    tl.store(running_mean + channel, old_mean + momentum * (mean - old_mean))
    tl.store(running_var + channel, old_var + momentum * (m2 / (count - 1.0) - old_var))
    if channel == 0:
        tl.store(tracked, tl.load(tracked) + 1)


@triton.jit
def normalise(x_ptr, mean_ptr, scale_ptr, w_ptr, b_ptr, y_ptr, channels, plane, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    channel = program % channels
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < plane
    at = program.to(tl.int64) * plane + i
    scale = tl.load(scale_ptr + channel) * tl.load(w_ptr + channel)
    v = tl.load(x_ptr + at, mask=inside, other=0.0)
    tl.store(y_ptr + at, (v - tl.load(mean_ptr + channel)) * scale + tl.load(b_ptr + channel), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        norm = self.norm
        if not norm.training:
            raise NotImplementedError("training mode only: running statistics are not used")
        x = x.contiguous()
        batch, channels = x.shape[0], x.shape[1]
        plane = x.numel() // (batch * channels)
        images = max(1, triton.cdiv(batch, 16))
        pieces = triton.cdiv(batch, images)
        parts = torch.empty((channels, pieces, 3), device=x.device, dtype=torch.float32)
        mean = torch.empty((channels,), device=x.device, dtype=torch.float32)
        scale = torch.empty_like(mean)
        y = torch.empty_like(x)
        partial_statistics[(channels, pieces)](
            x, parts, batch, channels, plane, images, BLOCK=2048, num_warps=8
        )
        combine_statistics[(channels,)](
            parts,
            mean,
            scale,
            norm.running_mean,
            norm.running_var,
            norm.num_batches_tracked,
            pieces,
            norm.eps,
            norm.momentum,
            BLOCK=triton.next_power_of_2(pieces),
            num_warps=1,
        )
        block = min(4096, triton.next_power_of_2(plane))
        grid = (batch * channels, triton.cdiv(plane, block))
        normalise[grid](x, mean, scale, norm.weight, norm.bias, y, channels, plane, BLOCK=block, num_warps=8)
        return y
