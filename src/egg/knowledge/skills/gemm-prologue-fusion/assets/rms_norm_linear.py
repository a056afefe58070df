"""linear(rms_norm(x) * gain) in one kernel: the normalization rides on the product's own loads.

The row's factor 1/rms is the same for every k, so it comes out of the sum: the loop multiplies x by the gain
(one value per k) on its way into the product and adds up x^2 beside it; the factor is applied to the
finished tile. Eager writes the normalized x and reads it back. The squares are summed once per tile of N
again, which costs BLOCK_M x BLOCK_K operations beside 2 x BLOCK_M x BLOCK_N x BLOCK_K of the product.
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
def rms_norm_linear(
    x_ptr, gain_ptr, w_ptr, b_ptr, out_ptr, M, N, K, eps,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    squares = tl.zeros((BLOCK_M, BLOCK_K), dtype=tl.float32)  # summed over k once, behind the loop
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        gain = tl.load(gain_ptr + k, mask=k < K, other=0.0)
        w = tl.load(w_ptr + n[:, None] * K + k[None, :], mask=(n[:, None] < N) & (k[None, :] < K), other=0.0)
        squares += x * x
        acc = tl.dot(x * gain[None, :], w.T, acc, input_precision=PRECISION)
    factor = tl.rsqrt(tl.sum(squares, axis=1) / K + eps)
    result = acc * factor[:, None] + tl.load(b_ptr + n, mask=n < N, other=0.0)[None, :]
    at = m[:, None].to(tl.int64) * N + n[None, :]
    tl.store(out_ptr + at, result, mask=(m[:, None] < M) & (n[None, :] < N))


class Model(nn.Module):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(features, eps=1e-5)
        self.linear = nn.Linear(features, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.norm(x))


class ModelNew(nn.Module):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(features, eps=1e-5)
        self.linear = nn.Linear(features, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        (M, K), N = x.shape, self.linear.weight.shape[0]
        out = torch.empty(M, N, device=x.device, dtype=x.dtype)
        rms_norm_linear[(triton.cdiv(M, BLOCK_M), triton.cdiv(N, BLOCK_N))](
            x, self.norm.weight, self.linear.weight, self.linear.bias, out, M, N, K, self.norm.eps,
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, PRECISION=PRECISION,
            num_warps=NUM_WARPS, num_stages=NUM_STAGES,
        )  # fmt: skip
        return out


def get_inputs() -> list[torch.Tensor]:
    return [3.0 * torch.randn(93, 101)]


def get_init_inputs() -> list[int]:
    return [101, 77]
