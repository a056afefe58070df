"""Batched product of small matrices (12 x 20 times 20 x 9) + ReLU, several matrices per program.

A library call gives each matrix a tile of its own, mostly padding. Here a program takes PER matrices as
one 3-D product, so that its loads are long and its warps are busy; K is one block, there is no loop.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PER = 4  # matrices per program: enough for 4 KB and more of loads
NUM_WARPS = 4
PRECISION = "ieee"  # memory-bound: exact products cost nothing here


@triton.jit
def small_products(
    a_ptr,
    b_ptr,
    y_ptr,
    batch,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PER: tl.constexpr,
    PRECISION: tl.constexpr,
):
    i = tl.program_id(0) * PER + tl.arange(0, PER)
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    live = (i < batch)[:, None, None]
    i = i.to(tl.int64)[:, None, None]
    a = tl.load(
        a_ptr + i * (M * K) + (m[:, None] * K + k[None, :])[None, :, :],
        mask=live & (m < M)[None, :, None] & (k < K)[None, None, :],
        other=0.0,
    )
    b = tl.load(
        b_ptr + i * (K * N) + (k[:, None] * N + n[None, :])[None, :, :],
        mask=live & (k < K)[None, :, None] & (n < N)[None, None, :],
        other=0.0,
    )
    y = tl.maximum(tl.dot(a, b, input_precision=PRECISION), 0.0)
    tl.store(
        y_ptr + i * (M * N) + (m[:, None] * N + n[None, :])[None, :, :],
        y,
        mask=live & (m < M)[None, :, None] & (n < N)[None, None, :],
    )


class Model(nn.Module):
    def forward(self, a, b):
        return torch.relu(torch.bmm(a, b))


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        batch, m, k = a.shape
        n = b.shape[2]
        y = torch.empty((batch, m, n), device=a.device, dtype=a.dtype)
        bm, bn, bk = (max(16, triton.next_power_of_2(size)) for size in (m, n, k))
        small_products[(triton.cdiv(batch, PER),)](
            a, b, y, batch, m, n, k, bm, bn, bk, PER, PRECISION, num_warps=NUM_WARPS
        )
        return y


def get_inputs():
    return [torch.randn(13, 12, 20), torch.randn(13, 20, 9)]


def get_init_inputs():
    return []
