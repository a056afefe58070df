"""Linear + GELU at fp32 grade on 16-bit tensor cores: operands as scaled fp16 hi + lo, three products.

1. `split`: each row is scaled by an exact power of two so that its largest magnitude lies in [256, 512),
   then hi = fp16(v), lo = fp16(v - hi): 22 bits, whatever the range of the row. One pass over each operand.
2. `product`: lo*hi + hi*lo + hi*hi per block of K, summed from zero on the tensor core and added to the
   running sum in ordinary fp32: Hopper's tensor cores truncate when they accumulate, and over a long K
   that alone costs a digit. The scales go back in the epilogue, exactly.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK_M = 32  # 128 at real sizes
BLOCK_N = 32  # 128 (two accumulators live at once: 256 spills)
BLOCK_K = 32  # 64: the stretch that is summed without promotion
NUM_WARPS = 4
NUM_STAGES = 3


@triton.jit
def split(
    x_ptr,
    hi_ptr,
    lo_ptr,
    inverse_ptr,
    R,
    K: tl.constexpr,
    KP: tl.constexpr,
    BR: tl.constexpr,
    BK: tl.constexpr,
):
    r, k = tl.program_id(0) * BR + tl.arange(0, BR), tl.arange(0, BK)
    ok = (r < R)[:, None] & (k < K)[None, :]
    v = tl.load(x_ptr + r.to(tl.int64)[:, None] * K + k[None, :], mask=ok, other=0.0)
    exponent = (tl.max(tl.abs(v), axis=1).to(tl.int32, bitcast=True) >> 23) & 255
    exponent = tl.minimum(tl.maximum(exponent, 9), 254)  # both scales stay normal numbers
    v = v * ((262 - exponent) << 23).to(tl.float32, bitcast=True)[:, None]
    hi = v.to(tl.float16)
    at = r.to(tl.int64)[:, None] * KP + k[None, :]
    kept = (r < R)[:, None] & (k < KP)[None, :]
    tl.store(hi_ptr + at, hi, mask=kept)
    tl.store(lo_ptr + at, (v - hi.to(tl.float32)).to(tl.float16), mask=kept)
    tl.store(inverse_ptr + r, ((exponent - 8) << 23).to(tl.float32, bitcast=True), mask=r < R)


@triton.jit
def product(
    ah_ptr,
    al_ptr,
    bh_ptr,
    bl_ptr,
    sa_ptr,
    sb_ptr,
    bias_ptr,
    y_ptr,
    M,
    N,
    KP: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    kk = tl.arange(0, BK)
    a_at = tl.minimum(m, M - 1).to(tl.int64)[:, None] * KP + kk[None, :]  # clamped rows are not stored
    b_at = tl.minimum(n, N - 1).to(tl.int64)[:, None] * KP + kk[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, KP, BK):
        ah, al = tl.load(ah_ptr + a_at + k), tl.load(al_ptr + a_at + k)
        bh, bl = tl.load(bh_ptr + b_at + k), tl.load(bl_ptr + b_at + k)
        part = tl.dot(al, bh.T)  # small ones first, each block from zero
        part = tl.dot(ah, bl.T, part)
        part = tl.dot(ah, bh.T, part)
        total += part  # rounded to nearest, not truncated
    scale = tl.load(sa_ptr + m, mask=m < M, other=0.0)[:, None]
    y = total * scale * tl.load(sb_ptr + n, mask=n < N, other=0.0)[None, :]
    y += tl.load(bias_ptr + n, mask=n < N, other=0.0)[None, :]
    y = 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))
    tl.store(y_ptr + m.to(tl.int64)[:, None] * N + n[None, :], y, mask=(m < M)[:, None] & (n < N)[None, :])


def split_rows(x):
    rows, k = x.shape
    kp = triton.cdiv(k, BLOCK_K) * BLOCK_K  # padded with zeros, so the product needs no mask along K
    hi = torch.empty((rows, kp), device=x.device, dtype=torch.float16)
    lo = torch.empty_like(hi)
    inverse = torch.empty((rows,), device=x.device, dtype=torch.float32)
    split[(triton.cdiv(rows, 8),)](x, hi, lo, inverse, rows, k, kp, 8, triton.next_power_of_2(kp))
    return hi, lo, inverse


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.fc = nn.Linear(inputs, outputs)

    def forward(self, x):
        return nn.functional.gelu(self.fc(x))


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        ah, al, sa = split_rows(x)
        bh, bl, sb = split_rows(self.fc.weight)
        m, n = x.shape[0], self.fc.out_features
        y = torch.empty((m, n), device=x.device, dtype=x.dtype)
        product[(triton.cdiv(m, BLOCK_M), triton.cdiv(n, BLOCK_N))](
            ah,
            al,
            bh,
            bl,
            sa,
            sb,
            self.fc.bias,
            y,
            m,
            n,
            ah.shape[1],
            BLOCK_M,
            BLOCK_N,
            BLOCK_K,
            num_warps=NUM_WARPS,
            num_stages=NUM_STAGES,
        )
        return y


def get_inputs():
    return [torch.randn(45, 83) * 10.0 ** torch.randint(-2, 2, (45, 1))]


def get_init_inputs():
    return [83, 50]
