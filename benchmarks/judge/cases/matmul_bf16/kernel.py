"""bf16 products accumulated in fp32; bias and residual are added before the one rounding."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def linear_residual(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    program = tl.program_id(0)
    group = program // (GROUP * tiles_n)
    rows = tl.minimum(tiles_m - group * GROUP, GROUP)
    tile_m = group * GROUP + (program % (GROUP * tiles_n)) % rows
    tile_n = (program % (GROUP * tiles_n)) // rows
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x_at = x_ptr + (m % M)[:, None] * K + k[None, :]
    w_at = w_ptr + (n % N)[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        if EVEN_K:
            x = tl.load(x_at + start)
            w = tl.load(w_at + start)
        else:
            x = tl.load(x_at + start, mask=(start + k < K)[None, :], other=0.0)
            w = tl.load(w_at + start, mask=(start + k < K)[:, None], other=0.0)
        total = tl.dot(x, w, total)
    valid = (m < M)[:, None] & (n < N)[None, :]
    at = m[:, None] * N + n[None, :]
    bias = tl.load(b_ptr + n, mask=n < N, other=0.0).to(tl.float32)
    residual = tl.load(x_ptr + at, mask=valid, other=0.0).to(tl.float32)
    tl.store(y_ptr + at, (total + bias[None, :] + residual).to(tl.bfloat16), mask=valid)


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.projection = nn.Linear(width, width)

    def forward(self, x):
        x = x.contiguous()
        M, K = x.shape
        y = torch.empty_like(x)
        BM, BN, BK = 128, 256, 64
        grid = (triton.cdiv(M, BM) * triton.cdiv(K, BN),)
        linear_residual[grid](
            x,
            self.projection.weight,
            self.projection.bias,
            y,
            M,
            K,
            K,
            BM=BM,
            BN=BN,
            BK=BK,
            GROUP=8,
            EVEN_K=K % BK == 0,
            num_warps=8,
            num_stages=3,
        )
        return y
