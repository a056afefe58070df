"""Linear left to the library; swish, bias and group norm in one kernel that reads each group twice."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def swish_bias_group_norm_kernel(
    x_ptr, bias_ptr, gamma_ptr, beta_ptr, y_ptr, C, eps, SIZE: tl.constexpr, BLOCK: tl.constexpr
):
    row, group = tl.program_id(0), tl.program_id(1)
    base = row * C + group * SIZE
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, SIZE, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + cols, mask=cols < SIZE, other=0.0)
        v = x * tl.sigmoid(x) + tl.load(bias_ptr + group * SIZE + cols, mask=cols < SIZE, other=0.0)
        total += v
        squares += v * v
    mean = tl.sum(total, axis=0) / SIZE
    scale = tl.rsqrt(tl.sum(squares, axis=0) / SIZE - mean * mean + eps)
    for start in range(0, SIZE, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < SIZE
        channel = group * SIZE + cols
        x = tl.load(x_ptr + base + cols, mask=mask, other=0.0)
        v = x * tl.sigmoid(x) + tl.load(bias_ptr + channel, mask=mask, other=0.0)
        gamma = tl.load(gamma_ptr + channel, mask=mask)
        beta = tl.load(beta_ptr + channel, mask=mask)
        tl.store(y_ptr + base + cols, (v - mean) * scale * gamma + beta, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, num_groups, bias_shape):
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.group_norm = nn.GroupNorm(num_groups, out_features)

    def forward(self, x):
        x = self.matmul(x)
        norm = self.group_norm
        rows, channels = x.shape
        y = torch.empty_like(x)
        swish_bias_group_norm_kernel[(rows, norm.num_groups)](
            x, self.bias, norm.weight, norm.bias, y, channels, norm.eps, channels // norm.num_groups, BLOCK=32
        )
        return y
