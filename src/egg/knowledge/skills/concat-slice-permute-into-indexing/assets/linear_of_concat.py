"""Linear(cat([a, permute(b)], -1))[..., SKIP:] in one kernel: no copy is ever made.

The concatenation is a second loop over K that continues in the same accumulator, the permutation is a
pair of strides, the slice moves the first weight row. Eager copies b once and both parts again.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK_M = 32  # 128 at real sizes
BLOCK_N = 32  # 128
BLOCK_K = 16  # 32
PRECISION = "bf16x6"  # fp32 grade; "tf32" where the reference runs TF32
NUM_WARPS = 4


@triton.jit
def linear_of_two(
    a_ptr,
    b_ptr,
    w_ptr,
    bias_ptr,
    y_ptr,
    M,
    N,
    length,
    KA: tl.constexpr,
    KB: tl.constexpr,
    sb_n,
    sb_c,
    sb_l,
    PRECISION: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    kk = tl.arange(0, BK)
    rows, columns = (m < M)[:, None], (n < N)[None, :]
    a_at = a_ptr + m.to(tl.int64)[:, None] * KA
    b_at = b_ptr + (m // length).to(tl.int64)[:, None] * sb_n + (m % length)[:, None] * sb_l
    w_at = w_ptr + n[None, :] * (KA + KB)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, KA, BK):
        k = k0 + kk
        a = tl.load(a_at + k[None, :], mask=rows & (k < KA)[None, :], other=0.0)
        w = tl.load(w_at + k[:, None], mask=columns & (k < KA)[:, None], other=0.0)
        acc = tl.dot(a, w, acc, input_precision=PRECISION)
    for k0 in range(0, KB, BK):
        k = k0 + kk
        b = tl.load(b_at + k[None, :] * sb_c, mask=rows & (k < KB)[None, :], other=0.0)
        w = tl.load(w_at + KA + k[:, None], mask=columns & (k < KB)[:, None], other=0.0)
        acc = tl.dot(b, w, acc, input_precision=PRECISION)
    acc += tl.load(bias_ptr + n, mask=n < N, other=0.0)[None, :]
    tl.store(y_ptr + m.to(tl.int64)[:, None] * N + n[None, :], acc, mask=rows & columns)


class Model(nn.Module):
    def __init__(self, first, second, outputs, skip):
        super().__init__()
        self.fc = nn.Linear(first + second, outputs)
        self.skip = skip

    def forward(self, a, b):  # a: [N, L, KA], b: [N, KB, L]
        return self.fc(torch.cat([a, b.permute(0, 2, 1)], dim=-1))[..., self.skip :]


class ModelNew(Model):
    def forward(self, a, b):
        a = a.contiguous()
        batch, length, ka = a.shape
        kb, n = b.shape[1], self.fc.out_features - self.skip
        m = batch * length
        y = torch.empty((batch, length, n), device=a.device, dtype=a.dtype)
        weight, bias = self.fc.weight[self.skip :], self.fc.bias[self.skip :]  # views, no copies
        linear_of_two[(triton.cdiv(m, BLOCK_M), triton.cdiv(n, BLOCK_N))](
            a,
            b,
            weight,
            bias,
            y,
            m,
            n,
            length,
            ka,
            kb,
            b.stride(0),
            b.stride(1),
            b.stride(2),
            PRECISION,
            BLOCK_M,
            BLOCK_N,
            BLOCK_K,
            num_warps=NUM_WARPS,
        )
        return y


def get_inputs():
    return [torch.randn(2, 21, 18), torch.randn(2, 27, 21)]


def get_init_inputs():
    return [18, 27, 40, 3]
