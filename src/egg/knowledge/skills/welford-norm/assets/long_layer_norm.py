"""layer_norm of rows too long for registers: mean and variance in one pass, then one pass that applies them.

Every lane runs Welford's recurrence over its own elements: the mean it has so far and the sum of squares
about that mean. All lanes have seen the same number of elements except in the last, ragged piece, so the
reciprocal of the count is one scalar per piece. Lanes are joined once, by a reduction over triples. The
sum of squares minus the square of the sum would be cheaper by an operation and loses every digit where
the mean is large beside the deviation.
"""

from __future__ import annotations

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK = 512
NUM_WARPS = 4


@triton.jit
def join(count_a, mean_a, squares_a, count_b, mean_b, squares_b):
    count = count_a + count_b
    share = tl.where(count > 0.0, count_b / tl.maximum(count, 1.0), 0.0)
    apart = mean_b - mean_a
    return count, mean_a + apart * share, squares_a + squares_b + apart * apart * count_a * share


@triton.jit
def long_layer_norm(x_ptr, gamma_ptr, beta_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    lane = tl.arange(0, BLOCK)
    mean = tl.zeros((BLOCK,), dtype=tl.float32)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    whole = columns // BLOCK
    for piece in range(whole):
        x = tl.load(x_ptr + row + piece * BLOCK + lane).to(tl.float32)
        apart = x - mean
        mean += apart * (1.0 / (piece + 1))
        squares += apart * (x - mean)
    at = whole * BLOCK + lane
    tail = at < columns
    x = tl.load(x_ptr + row + at, mask=tail, other=0.0).to(tl.float32)
    apart = tl.where(tail, x - mean, 0.0)  # a lane without an element in the tail stays as it is
    mean += apart * (1.0 / (whole + 1))
    squares += apart * tl.where(tail, x - mean, 0.0)
    count = tl.where(tail, whole + 1, whole).to(tl.float32)
    count, mean, squares = tl.reduce((count, mean, squares), 0, join)
    factor = tl.rsqrt(squares / columns + eps)
    pieces = tl.cdiv(columns, BLOCK)
    for piece in range(pieces):  # backwards: what was read last is still in cache
        at = (pieces - 1 - piece) * BLOCK + lane
        mask = at < columns
        x = tl.load(x_ptr + row + at, mask=mask, other=0.0).to(tl.float32)
        gamma = tl.load(gamma_ptr + at, mask=mask, other=0.0).to(tl.float32)
        beta = tl.load(beta_ptr + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(
            out_ptr + row + at, ((x - mean) * factor * gamma + beta).to(out_ptr.dtype.element_ty), mask=mask
        )


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        columns = x.shape[-1]
        out = torch.empty_like(x)
        long_layer_norm[(x.numel() // columns,)](
            x, self.norm.weight, self.norm.bias, out, columns, self.norm.eps, BLOCK=BLOCK, num_warps=NUM_WARPS
        )
        return out


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(5, 1777) + 100.0]  # a large mean: the naive formula fails here


def get_init_inputs() -> list[int]:
    return [1777]
