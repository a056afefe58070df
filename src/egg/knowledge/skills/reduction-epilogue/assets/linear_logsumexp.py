"""logsumexp(clamp(x W^T + b)) over the output features, without ever writing the [M, N] product.

The product's tile ends in registers, so its row maximum and sum of exponentials are taken there and only
two numbers per row and tile are written; a second, tiny kernel joins the tiles of a row. No atomics, so
repeated runs agree bit for bit. Eager writes and rereads M x N values three times.
"""

from __future__ import annotations

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK_M = 64
BLOCK_N = 64
BLOCK_K = 32
NUM_WARPS = 8
NUM_STAGES = 3
PRECISION = (
    "bf16x6"  # fp32-grade on every GPU; "tf32x3" is faster on NVIDIA, "tf32" where the policy allows it
)


@triton.jit
def product_partials(
    x_ptr, w_ptr, b_ptr, max_ptr, sum_ptr, M, N, K, low, high,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    tile_n = tl.program_id(1)
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + n[:, None] * K + k[None, :], mask=(n[:, None] < N) & (k[None, :] < K), other=0.0)
        acc = tl.dot(x, w.T, acc, input_precision=PRECISION)
    value = acc + tl.load(b_ptr + n, mask=n < N, other=0.0)[None, :]
    value = tl.clamp(value, low, high, propagate_nan=tl.PropagateNan.ALL)
    # Columns beyond N hold clamp(0), not nothing: they are taken out of the reduction, here and only here.
    value = tl.where((n < N)[None, :], value, float("-inf"))
    top = tl.max(value, axis=1)
    total = tl.sum(tl.exp(value - top[:, None]), axis=1)
    at = tile_n * M + m  # one row of partials per tile: neighbouring rows are neighbours in memory
    tl.store(max_ptr + at, top, mask=m < M)
    tl.store(sum_ptr + at, total, mask=m < M)


@triton.jit
def join_partials(max_ptr, sum_ptr, out_ptr, M, tiles, BLOCK_M: tl.constexpr, TILES: tl.constexpr):
    m = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M))[None, :]
    tile = tl.arange(0, TILES)[:, None]
    mask = (tile < tiles) & (m < M)
    tops = tl.load(max_ptr + tile * M + m, mask=mask, other=float("-inf"))
    sums = tl.load(sum_ptr + tile * M + m, mask=mask, other=0.0)
    top = tl.max(tops, axis=0)
    base = tl.where(top == float("-inf"), 0.0, top)  # rows beyond M: -inf minus -inf would be NaN
    total = tl.sum(sums * tl.exp(tops - base[None, :]), axis=0)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    tl.store(out_ptr + rows, base + tl.log(total), mask=rows < M)


class Model(nn.Module):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(self.linear(x).clamp(-2.0, 2.0), dim=1)


class ModelNew(nn.Module):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        (M, K), N = x.shape, self.linear.weight.shape[0]
        tiles = triton.cdiv(N, BLOCK_N)
        tops = torch.empty(tiles, M, device=x.device, dtype=torch.float32)
        sums = torch.empty_like(tops)
        out = torch.empty(M, device=x.device, dtype=x.dtype)
        product_partials[(triton.cdiv(M, BLOCK_M), tiles)](
            x, self.linear.weight, self.linear.bias, tops, sums, M, N, K, -2.0, 2.0,
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, PRECISION=PRECISION,
            num_warps=NUM_WARPS, num_stages=NUM_STAGES,
        )  # fmt: skip
        join_partials[(triton.cdiv(M, 64),)](
            tops, sums, out, M, tiles, BLOCK_M=64, TILES=triton.next_power_of_2(tiles), num_warps=4
        )
        return out


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(101, 75)]


def get_init_inputs() -> list[int]:
    return [75, 150]
