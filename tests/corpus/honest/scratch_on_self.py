"""A scratch buffer kept on self between calls; what is returned is always new.

task: linear_gelu
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bias_gelu(h, b, y, n, C: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    v = tl.load(h + i, mask=mask, other=0.0) + tl.load(b + i % C)
    tl.store(y + i, 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476)), mask=mask)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        rk = k0 + tl.arange(0, BK)
        ta = tl.load(a + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        tb = tl.load(b + rn[None, :] * K + rk[:, None], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(ta, tb, acc, input_precision="ieee")
    tl.store(c + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


def launch(a, b, c):
    (M, K), N = a.shape, b.shape[0]
    matmul[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, c, M, N, K, BM=32, BN=32, BK=32)
    return c


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scratch = None

    def forward(self, x):
        x = x.contiguous()
        shape = (x.shape[0], self.linear.weight.shape[0])
        if self.scratch is None or self.scratch.shape != shape or self.scratch.device != x.device:
            self.scratch = x.new_empty(shape)
        h = launch(x, self.linear.weight, self.scratch)
        y = torch.empty_like(h)
        bias_gelu[(triton.cdiv(h.numel(), 1024),)](
            h, self.linear.bias, y, h.numel(), C=h.shape[1], BLOCK=1024
        )
        return y
