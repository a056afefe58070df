"""TF32 in the kernel where TF32 is the declared policy; the operands are rounded to nearest, as libraries
do.

task: matmul
needs: cpu
policy: precision=tf32
"""

import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def to_tf32(v):
    bits = (v.to(tl.int32, bitcast=True) + 0x1000) & -8192
    return tl.where(v == v, bits.to(tl.float32, bitcast=True), v)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        rk = k0 + tl.arange(0, BK)
        ta = tl.load(a + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        tb = tl.load(b + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(to_tf32(ta), to_tf32(tb), acc, input_precision="tf32")
    tl.store(c + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


def launch(a, b, c):
    (M, K), N = a.shape, b.shape[1]
    matmul[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, c, M, N, K, BM=32, BN=32, BK=32)
    return c


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        return launch(a, b, a.new_empty(a.shape[0], b.shape[1]))
