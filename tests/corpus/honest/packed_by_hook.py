"""Packed weights, dropped by a hook whenever a state dict is loaded.

task: linear_gelu
needs: cpu
"""

import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def transpose(w, out, N, K, B: tl.constexpr):
    n = tl.program_id(0) * B + tl.arange(0, B)
    k = tl.program_id(1) * B + tl.arange(0, B)
    mask = (n[:, None] < N) & (k[None, :] < K)
    tile = tl.load(w + n[:, None] * K + k[None, :], mask=mask)
    tl.store(out + k[None, :] * N + n[:, None], tile, mask=mask)


def packed(weight):
    N, K = weight.shape
    out = weight.new_empty(K, N)
    transpose[(triton.cdiv(N, 32), triton.cdiv(K, 32))](weight, out, N, K, B=32)
    return out


@triton.jit
def linear_gelu(x, w, b, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        rk = k0 + tl.arange(0, BK)
        tx = tl.load(x + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        tw = tl.load(w + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(tx, tw, acc, input_precision="ieee")
    h = acc + tl.load(b + rn, mask=rn < N, other=0.0)[None, :]
    h = 0.5 * h * (1.0 + tl.erf(h * 0.7071067811865476))
    tl.store(y + rm[:, None] * N + rn[None, :], h, mask=(rm[:, None] < M) & (rn[None, :] < N))


def launch(x, w, b, y):
    (M, K), N = x.shape, w.shape[1]
    linear_gelu[(triton.cdiv(M, 32), triton.cdiv(N, 32))](x, w, b, y, M, N, K, BM=32, BN=32, BK=32)
    return y


def drop_packed(module, incompatible_keys):
    module.packed = None


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.packed = None
        self.register_load_state_dict_post_hook(drop_packed)

    def forward(self, x):
        weight = self.linear.weight
        if self.packed is None or self.packed.device != x.device:
            self.packed = packed(weight.detach())
        x = x.contiguous()
        return launch(x, self.packed, self.linear.bias, x.new_empty(x.shape[0], weight.shape[0]))
