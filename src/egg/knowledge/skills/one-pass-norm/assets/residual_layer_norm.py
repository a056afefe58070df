"""layer_norm(x + residual) with rows held in registers: two reads, one write, nothing in between.

The row is loaded once; the mean, then the *centred* squares, then the result come from registers, so the
variance is as exact as a second pass over memory would make it. Several short rows share one program, so
that warps are full and one reduction instruction serves several rows.
"""

from __future__ import annotations

import torch
import torch.nn as nn
import triton
import triton.language as tl

ROWS = 4  # rows per program: about 4096 values in all; 1 from 4096 columns on
NUM_WARPS = 4


@triton.jit
def residual_layer_norm(
    x_ptr,
    residual_ptr,
    gamma_ptr,
    beta_ptr,
    out_ptr,
    rows,
    columns,
    eps,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows) & (column < columns)
    at = row.to(tl.int64) * columns + column
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    x += tl.load(residual_ptr + at, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=1) / columns
    centred = tl.where(mask, x - mean[:, None], 0.0)  # padding would add mean^2 each
    variance = tl.sum(centred * centred, axis=1) / columns
    gamma = tl.load(gamma_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
    beta = tl.load(beta_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
    result = centred * tl.rsqrt(variance + eps)[:, None] * gamma + beta
    tl.store(out_ptr + at, result.to(out_ptr.dtype.element_ty), mask=mask)


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self.norm(x + residual)


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        x, residual = x.contiguous(), residual.contiguous()
        columns = x.shape[-1]
        rows = x.numel() // columns
        out = torch.empty_like(x)
        residual_layer_norm[(triton.cdiv(rows, ROWS),)](
            x, residual, self.norm.weight, self.norm.bias, out, rows, columns, self.norm.eps,
            ROWS=ROWS, BLOCK=triton.next_power_of_2(columns), num_warps=NUM_WARPS,
        )  # fmt: skip
        return out


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(3, 37, 300) + 2.0, torch.randn(3, 37, 300)]


def get_init_inputs() -> list[int]:
    return [300]
