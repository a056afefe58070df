"""A pointwise chain with broadcasting in one pass: residual + scale * gelu(x + bias), both per channel.

Eager makes four kernels (add, gelu, multiply, add) that move ten tensors of this size; here x and the
residual are read once and the result is written once. A program handles a piece of one (n, c) plane, so
the channel's two constants are scalars and no element needs a division to find its channel.
"""

from __future__ import annotations

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK = 1024
NUM_WARPS = 4


@triton.jit
def channel_chain(
    x_ptr, residual_ptr, bias_ptr, scale_ptr, out_ptr, channels, plane, pieces, BLOCK: tl.constexpr
):
    # One axis of programs, pieces of a plane innermost: axis 0 may hold 2^31 - 1 programs, axis 1 only 65535.
    program = tl.program_id(0)
    row = program // pieces
    inside = (program % pieces) * BLOCK + tl.arange(0, BLOCK)
    mask = inside < plane
    at = row.to(tl.int64) * plane + inside
    channel = row % channels
    bias = tl.load(bias_ptr + channel).to(tl.float32)
    scale = tl.load(scale_ptr + channel).to(tl.float32)
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32) + bias
    residual = tl.load(residual_ptr + at, mask=mask, other=0.0).to(tl.float32)
    gelu = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(out_ptr + at, (residual + scale * gelu).to(out_ptr.dtype.element_ty), mask=mask)


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(channels, 1, 1))
        self.scale = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return residual + self.scale * nn.functional.gelu(x + self.bias)


class ModelNew(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(channels, 1, 1))
        self.scale = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        x, residual = x.contiguous(), residual.contiguous()
        batch, channels, height, width = x.shape
        plane = height * width
        pieces = triton.cdiv(plane, BLOCK)
        out = torch.empty_like(x)
        channel_chain[(batch * channels * pieces,)](
            x, residual, self.bias, self.scale, out, channels, plane, pieces, BLOCK=BLOCK, num_warps=NUM_WARPS
        )
        return out


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(3, 5, 37, 41), torch.randn(3, 5, 37, 41)]


def get_init_inputs() -> list[int]:
    return [5]
