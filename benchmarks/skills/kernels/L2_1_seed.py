"""Convolution left to the library; ReLU and bias in one pass over its result."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_bias_kernel(x_ptr, bias_ptr, y_ptr, total, C, HW, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    x = tl.load(x_ptr + i, mask=mask)
    bias = tl.load(bias_ptr + i // HW % C, mask=mask)
    tl.store(y_ptr + i, tl.maximum(x, 0.0) + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, bias_shape):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x):
        x = self.conv(x)
        y = torch.empty_like(x)
        total = x.numel()
        grid = (triton.cdiv(total, 256),)
        relu_bias_kernel[grid](x, self.bias, y, total, x.shape[1], x.shape[2] * x.shape[3], BLOCK=256)
        return y
