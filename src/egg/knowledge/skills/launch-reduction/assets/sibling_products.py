"""Three linear layers over the same input in one launch: the second axis of programs chooses the layer.

Siblings do not depend on each other, so nothing but the launch separates them. Side by side they fill the GPU
where each alone is a fraction of a wave, and x stays in L2 for all of them. Weights stay where they are:
no packed copy that would have to follow them when they change.
"""

from __future__ import annotations

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK_M = 32
BLOCK_N = 32
BLOCK_K = 32
NUM_WARPS = 4
NUM_STAGES = 3
PRECISION = (
    "bf16x6"  # fp32-grade on every GPU; "tf32x3" is faster on NVIDIA, "tf32" where the policy allows it
)


@triton.jit
def sibling_products(
    x_ptr, wq_ptr, bq_ptr, wk_ptr, bk_ptr, wv_ptr, bv_ptr, out_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    layer = tl.program_id(1)
    w_ptr = wq_ptr
    b_ptr = bq_ptr
    if layer == 1:
        w_ptr = wk_ptr
        b_ptr = bk_ptr
    if layer == 2:
        w_ptr = wv_ptr
        b_ptr = bv_ptr
    tiles_n = tl.cdiv(N, BLOCK_N)
    m = (tl.program_id(0) // tiles_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = (tl.program_id(0) % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + n[:, None] * K + k[None, :], mask=(n[:, None] < N) & (k[None, :] < K), other=0.0)
        acc = tl.dot(x, w.T, acc, input_precision=PRECISION)
    value = acc + tl.load(b_ptr + n, mask=n < N, other=0.0)[None, :]
    at = (layer * M + m[:, None]) * N + n[None, :]
    tl.store(out_ptr + at, value, mask=(m[:, None] < M) & (n[None, :] < N))


class Model(nn.Module):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.q = nn.Linear(features, outputs)
        self.k = nn.Linear(features, outputs)
        self.v = nn.Linear(features, outputs)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.q(x), self.k(x), self.v(x)


class ModelNew(nn.Module):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.q = nn.Linear(features, outputs)
        self.k = nn.Linear(features, outputs)
        self.v = nn.Linear(features, outputs)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = x.contiguous()
        (M, K), N = x.shape, self.q.weight.shape[0]
        out = torch.empty(3, M, N, device=x.device, dtype=x.dtype)  # one allocation, three contiguous results
        sibling_products[(triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N), 3)](
            x, self.q.weight, self.q.bias, self.k.weight, self.k.bias, self.v.weight, self.v.bias,
            out, M, N, K,
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, PRECISION=PRECISION,
            num_warps=NUM_WARPS, num_stages=NUM_STAGES,
        )  # fmt: skip
        return out[0], out[1], out[2]


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(50, 75)]


def get_init_inputs() -> list[int]:
    return [75, 60]
