"""A GRU layer in two kernels: all input projections as one product, then one program per batch tile that
walks through time with the hidden state and the recurrent weights on chip.

Rows of a batch never talk to each other, so programs need no barrier. This form fits while the recurrent
weights of one program stay in registers and shared memory (hidden size up to about 64 in fp32, 128 in
16 bits) and the batch gives enough programs; beyond that the hidden units are divided among programs too,
which takes a grid barrier per step.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

BATCH = 16  # rows per program; the least a tensor-core product takes
ROWS, COLUMNS, DEPTH = 32, 32, 16  # of the input projection: 128, 128, 32 at real sizes
PRECISION = "bf16x6"  # fp32 grade; errors of a recurrence feed back, so not less


@triton.jit
def project(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    M,
    N,
    K,
    PRECISION: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """y = x w^T + b for every step at once: this half of the work has no chain through time."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    kk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + kk
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        w = tl.load(w_ptr + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
        acc = tl.dot(x, w.T, acc, input_precision=PRECISION)
    acc += tl.load(b_ptr + n, mask=n < N, other=0.0)[None, :]
    tl.store(y_ptr + m.to(tl.int64)[:, None] * N + n[None, :], acc, mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def recur(
    gates_ptr,
    h0_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    T,
    B,
    H: tl.constexpr,
    BB: tl.constexpr,
    BH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    b, u, k = tl.program_id(0) * BB + tl.arange(0, BB), tl.arange(0, BH), tl.arange(0, BH)
    ok = (b < B)[:, None] & (u < H)[None, :]
    square = (u < H)[None, :] & (k < H)[:, None]
    w_at = w_ptr + u[None, :] * H + k[:, None]  # transposed while loading, once
    wr = tl.load(w_at, mask=square, other=0.0)
    wz = tl.load(w_at + H * H, mask=square, other=0.0)
    wn = tl.load(w_at + 2 * H * H, mask=square, other=0.0)
    br = tl.load(b_ptr + u, mask=u < H, other=0.0)[None, :]
    bz = tl.load(b_ptr + H + u, mask=u < H, other=0.0)[None, :]
    bn = tl.load(b_ptr + 2 * H + u, mask=u < H, other=0.0)[None, :]
    at = b[:, None] * H + u[None, :]
    h = tl.load(h0_ptr + at, mask=ok, other=0.0)
    for t in range(T):
        g_at = gates_ptr + (t * B + b).to(tl.int64)[:, None] * (3 * H) + u[None, :]
        gr = tl.load(g_at, mask=ok, other=0.0)
        gz = tl.load(g_at + H, mask=ok, other=0.0)
        gn = tl.load(g_at + 2 * H, mask=ok, other=0.0)
        r = 1.0 / (1.0 + tl.exp(-(gr + br + tl.dot(h, wr, input_precision=PRECISION))))
        z = 1.0 / (1.0 + tl.exp(-(gz + bz + tl.dot(h, wz, input_precision=PRECISION))))
        a = gn + r * (bn + tl.dot(h, wn, input_precision=PRECISION))
        e = tl.exp(-2.0 * tl.abs(a))
        n = tl.where(a < 0, e - 1.0, 1.0 - e) / (1.0 + e)
        h = n + z * (h - n)
        tl.store(y_ptr + t * B * H + at, h, mask=ok)


class Model(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.gru = nn.GRU(inputs, hidden)

    def forward(self, x, h0):
        return self.gru(x, h0)[0]


class ModelNew(Model):
    def forward(self, x, h0):
        x, h0, gru = x.contiguous(), h0.contiguous(), self.gru
        steps, batch, inputs = x.shape
        hidden = gru.hidden_size
        gates = torch.empty((steps, batch, 3 * hidden), device=x.device, dtype=torch.float32)
        y = torch.empty((steps, batch, hidden), device=x.device, dtype=x.dtype)
        project[(triton.cdiv(steps * batch, ROWS), triton.cdiv(3 * hidden, COLUMNS))](
            x,
            gru.weight_ih_l0,
            gru.bias_ih_l0,
            gates,
            steps * batch,
            3 * hidden,
            inputs,
            PRECISION,
            ROWS,
            COLUMNS,
            DEPTH,
            num_warps=4,
        )
        recur[(triton.cdiv(batch, BATCH),)](
            gates,
            h0,
            gru.weight_hh_l0,
            gru.bias_hh_l0,
            y,
            steps,
            batch,
            hidden,
            BATCH,
            max(16, triton.next_power_of_2(hidden)),
            PRECISION,
            num_warps=4,
        )
        return y


def get_inputs():
    return [torch.randn(5, 19, 11), torch.randn(1, 19, 24)]


def get_init_inputs():
    return [11, 24]
