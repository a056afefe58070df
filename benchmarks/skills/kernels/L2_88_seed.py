"""Linear left to the library; group norm over groups of 32, with both swishes and the weight."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def group_norm_swish_kernel(
    x_ptr, gamma_ptr, beta_ptr, weight_ptr, y_ptr, C, eps, SIZE: tl.constexpr, BLOCK: tl.constexpr
):
    row, group = tl.program_id(0), tl.program_id(1)
    cols = tl.arange(0, BLOCK)
    mask = cols < SIZE
    channel = group * SIZE + cols
    x = tl.load(x_ptr + row * C + channel, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / SIZE
    centred = tl.where(mask, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / SIZE + eps)
    x = tl.load(x_ptr + row * C + channel, mask=mask, other=0.0)
    x = (x - mean) * scale * tl.load(gamma_ptr + channel, mask=mask) + tl.load(beta_ptr + channel, mask=mask)
    x = x * tl.sigmoid(x) * tl.load(weight_ptr + channel, mask=mask)
    tl.store(y_ptr + row * C + channel, x * tl.sigmoid(x), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, num_groups, multiply_weight_shape):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.group_norm = nn.GroupNorm(num_groups, out_features)
        self.multiply_weight = nn.Parameter(torch.randn(multiply_weight_shape))

    def forward(self, x):
        x = self.gemm(x)
        norm = self.group_norm
        rows, channels = x.shape
        size = channels // norm.num_groups
        y = torch.empty_like(x)
        group_norm_swish_kernel[(rows, norm.num_groups)](
            x, norm.weight, norm.bias, self.multiply_weight, y, channels, norm.eps, size,
            BLOCK=triton.next_power_of_2(size), num_warps=1,
        )  # fmt: skip
        return y
