"""TF32 with B as it lies, N contiguous: Hopper's TF32 instruction wants K contiguous on both sides.

Both operands are rounded first, as libraries do: the tensor cores would cut their low bits off.
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def round_to_tf32(x_ptr, y_ptr, length, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < length, other=0.0)
    nearest = ((x.to(tl.int32, bitcast=True) + 0x1000) & -8192).to(tl.float32, bitcast=True)
    tl.store(y_ptr + i, tl.where(tl.abs(x) < 3.4e38, nearest, x), mask=i < length)


@triton.jit
def row_major_product(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a_at = a_ptr + (m % M)[:, None] * K + k[None, :]
    b_at = b_ptr + k[:, None] * N + (n % N)[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        if EVEN_K:
            a = tl.load(a_at)
            b = tl.load(b_at)
        else:
            a = tl.load(a_at, mask=(start + k < K)[None, :], other=0.0)
            b = tl.load(b_at, mask=(start + k < K)[:, None], other=0.0)
        total = tl.dot(a, b, total, input_precision="tf32")
        a_at += BK
        b_at += BK * N
    inside = (m < M)[:, None] & (n < N)[None, :]
    tl.store(c_ptr + m[:, None] * N + n[None, :], total, mask=inside)


def rounded(x):
    y = torch.empty_like(x)
    round_to_tf32[(triton.cdiv(x.numel(), 4096),)](x, y, x.numel(), BLOCK=4096, num_warps=8)
    return y


class ModelNew(nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)
        BM, BN, BK = 128, 128, 32
        grid = (triton.cdiv(M, BM), triton.cdiv(N, BN))
        row_major_product[grid](
            rounded(a), rounded(b), c, M, N, K,
            BM=BM, BN=BN, BK=BK, EVEN_K=K % BK == 0, num_warps=4, num_stages=4,
        )  # fmt: skip
        return c
