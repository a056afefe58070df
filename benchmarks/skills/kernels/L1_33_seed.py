"""Batch norm with the batch's statistics, first draft: one program per channel finds mean and variance."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def statistics(
    x, mean, variance, running_mean, running_variance, momentum, batch, channels, plane, BLOCK: tl.constexpr
):
    channel = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for image in range(batch):
        base = (channel.to(tl.int64) + image * channels) * plane
        for start in range(0, plane, BLOCK):
            where = start + tl.arange(0, BLOCK)
            values = tl.load(x + base + where, mask=where < plane, other=0.0)
            total += values
            squares += values * values
    count = batch * plane
    middle = tl.sum(total) / count
    tl.store(mean + channel, middle)
    spread = tl.sum(squares) / count - middle * middle
    tl.store(variance + channel, spread)
    kept = tl.load(running_mean + channel)
    tl.store(running_mean + channel, kept + momentum * (middle - kept))
    kept = tl.load(running_variance + channel)
    tl.store(running_variance + channel, kept + momentum * (spread * count / (count - 1) - kept))


@triton.jit
def normalize(x, y, mean, variance, weight, bias, channels, plane, eps, BLOCK: tl.constexpr):
    image_channel = tl.program_id(0)
    channel = image_channel % channels
    where = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    scale = tl.load(weight + channel) * tl.rsqrt(tl.load(variance + channel) + eps)
    shift = tl.load(bias + channel) - tl.load(mean + channel) * scale
    base = image_channel.to(tl.int64) * plane
    values = tl.load(x + base + where, mask=where < plane)
    tl.store(y + base + where, values * scale + shift, mask=where < plane)


class ModelNew(torch.nn.Module):
    def __init__(self, num_features):
        super().__init__()
        self.bn = torch.nn.BatchNorm2d(num_features)

    def forward(self, x):
        batch, channels, height, width = x.shape
        plane = height * width
        mean = torch.empty(channels, device=x.device)
        variance = torch.empty(channels, device=x.device)
        norm = self.bn
        running = (norm.running_mean, norm.running_var, norm.momentum)
        statistics[(channels,)](x, mean, variance, *running, batch, channels, plane, BLOCK=BLOCK)
        norm.num_batches_tracked += 1
        out = torch.empty_like(x)
        grid = (batch * channels, triton.cdiv(plane, BLOCK))
        affine = (mean, variance, norm.weight, norm.bias)
        normalize[grid](x, out, *affine, channels, plane, norm.eps, BLOCK=BLOCK)
        return out
