"""Convolution left to the library; batch statistics by one program per channel, then applied."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def statistics_kernel(
    x_ptr, mean_ptr, var_ptr, running_mean_ptr, running_var_ptr, momentum, N, C, HW, BLOCK: tl.constexpr
):
    channel = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for n in range(N):
        for start in range(0, HW, BLOCK):
            i = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + (n * C + channel) * HW + i, mask=i < HW, other=0.0)
            total += x
            squares += x * x
    mean = tl.sum(total, axis=0) / (N * HW)
    var = tl.sum(squares, axis=0) / (N * HW) - mean * mean
    tl.store(mean_ptr + channel, mean)
    tl.store(var_ptr + channel, var)
    unbiased = var * (N * HW) / (N * HW - 1)
    old_mean, old_var = tl.load(running_mean_ptr + channel), tl.load(running_var_ptr + channel)
    tl.store(running_mean_ptr + channel, old_mean + momentum * (mean - old_mean))
    tl.store(running_var_ptr + channel, old_var + momentum * (unbiased - old_var))


@triton.jit
def apply_kernel(
    x_ptr, mean_ptr, var_ptr, gamma_ptr, beta_ptr, y_ptr, total, C, HW, eps, factor, BLOCK: tl.constexpr
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    c = i // HW % C
    mean = tl.load(mean_ptr + c, mask=mask, other=0.0)
    scale = tl.rsqrt(tl.load(var_ptr + c, mask=mask, other=1.0) + eps)
    x = (tl.load(x_ptr + i, mask=mask, other=0.0) - mean) * scale
    x = x * tl.load(gamma_ptr + c, mask=mask, other=0.0) + tl.load(beta_ptr + c, mask=mask, other=0.0)
    tl.store(y_ptr + i, x * factor, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, scaling_factor):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.bn = nn.BatchNorm2d(out_channels)
        self.scaling_factor = scaling_factor

    def forward(self, x):
        x = self.conv(x)
        n, c, h, w = x.shape
        mean, var = self.bn.running_mean, self.bn.running_var
        if self.training:
            mean = torch.empty(c, device=x.device, dtype=torch.float32)
            var = torch.empty_like(mean)
            statistics_kernel[(c,)](
                x,
                mean,
                var,
                self.bn.running_mean,
                self.bn.running_var,
                self.bn.momentum,
                n,
                c,
                h * w,
                BLOCK=1024,
            )
            self.bn.num_batches_tracked += 1
        y = torch.empty_like(x)
        apply_kernel[(triton.cdiv(x.numel(), 512),)](
            x, mean, var, self.bn.weight, self.bn.bias, y, x.numel(), c, h * w, self.bn.eps,
            self.scaling_factor, BLOCK=512,
        )  # fmt: skip
        return y
