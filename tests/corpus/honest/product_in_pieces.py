"""A product in two pieces: of an infinity the second is NaN, and so is what a sigmoid makes of it.

task: linear_sigmoid
needs: cpu
"""

import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_sigmoid(x, w, b, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        rk = k0 + tl.arange(0, BK)
        tx = tl.load(x + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        tw = tl.load(w + rn[:, None] * K + rk[None, :], mask=(rn[:, None] < N) & (rk[None, :] < K), other=0.0)
        high = tx.to(tl.bfloat16).to(tl.float32)
        acc = tl.dot(high, tw.T, acc, input_precision="ieee")
        acc = tl.dot(tx - high, tw.T, acc, input_precision="ieee")
    h = tl.sigmoid(acc + tl.load(b + rn, mask=rn < N, other=0.0)[None, :])
    tl.store(y + rm[:, None] * N + rn[None, :], h, mask=(rm[:, None] < M) & (rn[None, :] < N))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        x = x.contiguous()
        (M, K), N = x.shape, self.linear.weight.shape[0]
        y = x.new_empty(M, N)
        grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
        linear_sigmoid[grid](x, self.linear.weight, self.linear.bias, y, M, N, K, 32, 32, 32)
        return y
