"""TF32 as libraries do it: operands rounded to nearest.

The tensor core ignores the low 13 bits of its operands, which truncates. Rounding inside the loop would
take the operands through registers and break the asynchronous copies, so a first kernel rounds both
matrices in memory; the product then loses nothing more.
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def round_to_tf32(x_ptr, y_ptr, size, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i, mask=i < size, other=0.0)
    bits = (v.to(tl.int32, bitcast=True) + 0x1000) & -8192
    rounded = bits.to(tl.float32, bitcast=True)
    finite = tl.abs(v) < 3.4e38
    tl.store(y_ptr + i, tl.where(finite, rounded, v), mask=i < size)


@triton.jit
def matmul_nt(
    a_ptr,
    b_ptr,
    c_ptr,
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
    a_at = a_ptr + (m % M)[:, None] * K + k[None, :]
    b_at = b_ptr + (n % N)[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        if EVEN_K:
            a = tl.load(a_at + start)
            b = tl.load(b_at + start)
        else:
            a = tl.load(a_at + start, mask=(start + k < K)[None, :], other=0.0)
            b = tl.load(b_at + start, mask=(start + k < K)[:, None], other=0.0)
        total = tl.dot(a, b, total, input_precision="tf32")
    tl.store(c_ptr + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])


def rounded(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    round_to_tf32[(triton.cdiv(x.numel(), 4096),)](x, y, x.numel(), BLOCK=4096, num_warps=8)
    return y


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.projection = nn.Linear(width, width, bias=False)

    def forward(self, x):
        a, b = rounded(x), rounded(self.projection.weight)
        (M, K), N = a.shape, b.shape[0]
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        BM, BN, BK = 128, 256, 32
        grid = (triton.cdiv(M, BM) * triton.cdiv(N, BN),)
        matmul_nt[grid](
            a, b, y, M, N, K, BM=BM, BN=BN, BK=BK, GROUP=8, EVEN_K=K % BK == 0, num_warps=8, num_stages=3
        )
        return y
