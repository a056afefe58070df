"""Residual + layer norm with the row held in registers: one read of each input, one write of each output.

Mean, variance and the normalised row are three passes over the same values; the row is loaded
once and the passes run over registers. Several short rows share a program so that all warps have work.
"""

import torch
import triton
import triton.language as tl
from torch import nn

ROWS = 4  # ROWS x BLOCK / (32 x WARPS) is the number of values a thread holds: 8 to 64 is comfortable
WARPS = 4


@triton.jit
def add_layer_norm(
    x_ptr, residual_ptr, weight_ptr, bias_ptr, out_ptr, rows, eps,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    inside = (r < rows)[:, None] & (c < WIDTH)[None, :]
    at = r[:, None].to(tl.int64) * WIDTH + c[None, :]
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    x += tl.load(residual_ptr + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=1) / WIDTH
    centred = tl.where((c < WIDTH)[None, :], x - mean[:, None], 0.0)  # padding must not count
    variance = tl.sum(centred * centred, axis=1) / WIDTH
    weight = tl.load(weight_ptr + c, mask=c < WIDTH, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + c, mask=c < WIDTH, other=0.0).to(tl.float32)
    y = centred * tl.rsqrt(variance + eps)[:, None] * weight[None, :] + bias[None, :]
    tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=inside)


class Model(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self.norm(x + residual)


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        x, residual = x.contiguous(), residual.contiguous()
        width = x.shape[-1]
        rows = x.numel() // width
        out = torch.empty_like(x)
        add_layer_norm[(triton.cdiv(rows, ROWS),)](
            x, residual, self.norm.weight, self.norm.bias, out, rows, self.norm.eps,
            WIDTH=width, ROWS=ROWS, BLOCK=triton.next_power_of_2(width), num_warps=WARPS,
        )  # fmt: skip
        return out


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(3, 21, 300), torch.randn(3, 21, 300)]


def get_init_inputs() -> list[int]:
    return [300]
