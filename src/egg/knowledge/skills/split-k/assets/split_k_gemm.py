"""A product with a long inner dimension and a small result: K in SPLIT parts, then a kernel adds them up.

The parts go to a workspace in fp32 and are added in a fixed order, so the result is the same every time;
bias and activation are fused into the second kernel, since only there the sum is complete.
"""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK_M, BLOCK_N, BLOCK_K = 64, 64, 64
SPLIT = 4
BLOCK = 1024
NUM_WARPS, NUM_STAGES = 4, 3


@triton.jit
def product_part(
    x_ptr, w_ptr, parts_ptr, M, N, K, part_k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Part ``program_id(1)`` of the sum: ``part_k``, a multiple of BLOCK_K, elements of K."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    m = (tl.program_id(0) // tiles_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = (tl.program_id(0) % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(1)
    k = tl.arange(0, BLOCK_K)
    x_at = x_ptr + (m % M).to(tl.int64)[:, None] * K + k[None, :]
    w_at = w_ptr + (n % N).to(tl.int64)[:, None] * K + k[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(part * part_k, tl.minimum((part + 1) * part_k, K), BLOCK_K):
        inside = (start + k < K)[None, :]
        x = tl.load(x_at + start, mask=inside, other=0.0)
        w = tl.load(w_at + start, mask=inside, other=0.0)
        total = tl.dot(x, w.T, total)
    at = parts_ptr + part.to(tl.int64) * M * N + m[:, None] * N + n[None, :]
    tl.store(at, total, mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def add_parts(parts_ptr, b_ptr, y_ptr, size, N, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < size
    total = tl.load(b_ptr + i % N, mask=inside, other=0.0).to(tl.float32)
    for part in tl.static_range(SPLIT):  # unrolled: all loads are under way together
        total += tl.load(parts_ptr + part * size + i, mask=inside, other=0.0)
    tl.store(y_ptr + i, (total * tl.sigmoid(total)).to(y_ptr.dtype.element_ty), mask=inside)


class Model(nn.Module):
    def __init__(self, inner, columns):
        super().__init__()
        self.linear = nn.Linear(inner, columns, dtype=torch.float16)

    def forward(self, x):
        return nn.functional.silu(self.linear(x))


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        (M, K), N = x.shape, self.linear.out_features
        part_k = triton.cdiv(triton.cdiv(K, SPLIT), BLOCK_K) * BLOCK_K
        split = triton.cdiv(K, part_k)  # may be fewer than asked for: none is empty
        parts = torch.empty((split, M, N), device=x.device, dtype=torch.float32)
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        product_part[(triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N), split)](
            x, self.linear.weight, parts, M, N, K, part_k,
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, num_warps=NUM_WARPS, num_stages=NUM_STAGES,
        )  # fmt: skip
        add_parts[(triton.cdiv(M * N, BLOCK),)](
            parts, self.linear.bias, y, M * N, N, SPLIT=split, BLOCK=BLOCK, num_warps=4
        )
        return y


def get_inputs():
    return [torch.randn(90, 1200, dtype=torch.float16)]


def get_init_inputs():
    return [1200, 70]
