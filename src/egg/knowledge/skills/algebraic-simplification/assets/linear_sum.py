"""sum over features of (x W^T + b) without the product: x . (column sums of W) + sum of b, for every input.

Nothing stands between the product and the sum but a sum, so the order of the two may change: M x N x K
multiplications become N x K + M x K additions and the work is two reads. Both kernels run in every call:
the sums come from the weights of this call, whatever they are. Column sums are taken in float64, so that
folding N weights into one before multiplying costs no accuracy against the product it replaces.
"""

from __future__ import annotations

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK_N = 32
BLOCK_K = 64
BLOCK_ROWS = 8
NUM_WARPS = 4


@triton.jit
def column_sums(w_ptr, b_ptr, sums_ptr, N, K, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    k = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_N, BLOCK_K), dtype=tl.float64)
    bias = tl.zeros((BLOCK_N,), dtype=tl.float64)
    for start in range(0, N, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        mask = (n < N)[:, None] & (k < K)[None, :]
        total += tl.load(w_ptr + n[:, None] * K + k[None, :], mask=mask, other=0.0).to(tl.float64)
        bias += tl.load(b_ptr + n, mask=n < N, other=0.0).to(tl.float64)
    tl.store(sums_ptr + k, tl.sum(total, axis=0).to(tl.float32), mask=k < K)
    if tl.program_id(0) == 0:
        tl.store(sums_ptr + K, tl.sum(bias, axis=0).to(tl.float32))


@triton.jit
def row_products(x_ptr, sums_ptr, out_ptr, M, K, BLOCK_ROWS: tl.constexpr, BLOCK_K: tl.constexpr):
    m = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    total = tl.zeros((BLOCK_ROWS, BLOCK_K), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        mask = (m < M)[:, None] & (k < K)[None, :]
        x = tl.load(x_ptr + m[:, None].to(tl.int64) * K + k[None, :], mask=mask, other=0.0)
        total += x * tl.load(sums_ptr + k, mask=k < K, other=0.0)[None, :]
    tl.store(out_ptr + m, tl.sum(total, axis=1) + tl.load(sums_ptr + K), mask=m < M)


class Model(nn.Module):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).sum(dim=1, keepdim=True)


class ModelNew(nn.Module):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        (M, K), N = x.shape, self.linear.weight.shape[0]
        sums = torch.empty(K + 1, device=x.device, dtype=torch.float32)
        out = torch.empty(M, 1, device=x.device, dtype=x.dtype)
        column_sums[(triton.cdiv(K, BLOCK_K),)](
            self.linear.weight,
            self.linear.bias,
            sums,
            N,
            K,
            BLOCK_N=BLOCK_N,
            BLOCK_K=BLOCK_K,
            num_warps=NUM_WARPS,
        )
        row_products[(triton.cdiv(M, BLOCK_ROWS),)](
            x, sums, out, M, K, BLOCK_ROWS=BLOCK_ROWS, BLOCK_K=BLOCK_K, num_warps=NUM_WARPS
        )
        return out


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(51, 150)]


def get_init_inputs() -> list[int]:
    return [150, 101]
