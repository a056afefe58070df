"""One kernel for the product and its tail; three TF32 products per tile make the sums fp32-grade."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def linear_gelu_residual(
    x_ptr, w_ptr, b_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        inside = start + k < K
        x = tl.load(
            x_ptr + m[:, None] * K + start + k[None, :], mask=(m[:, None] < M) & inside[None, :], other=0.0
        )
        w = tl.load(
            w_ptr + n[None, :] * K + start + k[:, None], mask=(n[None, :] < N) & inside[:, None], other=0.0
        )
        total = tl.dot(x, w, total, input_precision="tf32x3")
    total += tl.load(b_ptr + n, mask=n < N, other=0.0)[None, :]
    gelu = 0.5 * total * (1.0 + tl.erf(total * 0.7071067811865476))
    place = m[:, None] * N + n[None, :]
    valid = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y_ptr + place, tl.load(x_ptr + place, mask=valid, other=0.0) + gelu, mask=valid)


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        M, K = x.shape
        N = self.linear.weight.shape[0]
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        BM, BN, BK = 128, 128, 32
        grid = (triton.cdiv(M, BM), triton.cdiv(N, BN))
        linear_gelu_residual[grid](
            x,
            self.linear.weight,
            self.linear.bias,
            y,
            M,
            N,
            K,
            BM=BM,
            BN=BN,
            BK=BK,
            num_warps=8,
            num_stages=3,
        )
        return y
