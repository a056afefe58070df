"""Twelve stages for a loop of one step: 192 KB of buffers, of which one twelfth is ever needed.

One program of four warps fits on an SM, and everything it waits for (its first and only tiles, the tensor
cores, its stores) is waited for by the whole SM.
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def deep_pipeline(a_ptr, b_ptr, c_ptr, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    one = tl.program_id(0).to(tl.int64)
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    a_at = a_ptr + one * M * K + m[:, None] * K + k[None, :]
    b_at = b_ptr + one * K * N + k[:, None] * N + n[None, :]
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BK):
        total = tl.dot(tl.load(a_at + start), tl.load(b_at + start * N), total)
    tl.store(c_ptr + one * M * N + m[:, None] * N + n[None, :], total.to(tl.float16))


class ModelNew(nn.Module):
    def forward(self, a, b):
        (batch, M, K), N = a.shape, b.shape[2]
        c = torch.empty((batch, M, N), device=a.device, dtype=a.dtype)
        deep_pipeline[(batch,)](a, b, c, K, M=M, N=N, BK=min(K, 64), num_warps=4, num_stages=12)
        return c
