"""A product with a long sum, first draft: one program adds up all of K for its 64x64 tile."""

import torch
import triton
import triton.language as tl

BM, BN, BK = 64, 64, 32


@triton.jit
def product(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        inner = start + tl.arange(0, BK)
        left = tl.load(
            a + rows[:, None] * k + inner[None, :], mask=(rows[:, None] < m) & (inner[None, :] < k), other=0.0
        )
        right = tl.load(
            b + inner[:, None] * n + columns[None, :],
            mask=(inner[:, None] < k) & (columns[None, :] < n),
            other=0.0,
        )
        total += tl.dot(left, right, input_precision="tf32x3")
    tl.store(
        c + rows[:, None] * n + columns[None, :], total, mask=(rows[:, None] < m) & (columns[None, :] < n)
    )


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        m, k = A.shape
        n = B.shape[1]
        out = torch.empty((m, n), device=A.device, dtype=A.dtype)
        grid = (triton.cdiv(m, BM), triton.cdiv(n, BN))
        product[grid](A, B, out, m, n, k, BM=BM, BN=BN, BK=BK)
        return out
