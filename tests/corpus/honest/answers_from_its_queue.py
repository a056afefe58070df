"""Scores against keys of earlier calls, which the task keeps: each answer follows from the calls before.

task: scores_of_a_queue
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def put(x, queue, place, R, C, BR: tl.constexpr):
    c = tl.program_id(0)
    r = tl.arange(0, BR)
    v = tl.load(x + r * C + c, mask=r < R, other=0.0)
    at = tl.load(place)
    tl.store(queue + at * C + c, tl.sum(v, axis=0) / R)


@triton.jit
def step(place, L):
    tl.store(place, (tl.load(place) + 1) % L)


@triton.jit
def score(x, queue, y, R, L, C, BR: tl.constexpr, BL: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    k = tl.arange(0, BL)
    c = tl.arange(0, BC)
    a = tl.load(x + r[:, None] * C + c[None, :], mask=(r[:, None] < R) & (c[None, :] < C), other=0.0)
    b = tl.load(queue + k[None, :] * C + c[:, None], mask=(k[None, :] < L) & (c[:, None] < C), other=0.0)
    out = tl.dot(a, b, input_precision="ieee")
    tl.store(y + r[:, None] * L + k[None, :], out, mask=(r[:, None] < R) & (k[None, :] < L))


class ModelNew(nn.Module):
    def __init__(self, features: int, length: int):
        super().__init__()
        self.register_buffer("queue", torch.randn(length, features))
        self.register_buffer("place", torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        x = x.contiguous()
        R, C = x.shape
        L = self.queue.shape[0]
        y = torch.empty(R, L, dtype=x.dtype, device=x.device)
        put[(C,)](x, self.queue, self.place, R, C, BR=triton.next_power_of_2(R))
        step[(1,)](self.place, L)
        n = triton.next_power_of_2
        score[(triton.cdiv(R, 16),)](x, self.queue, y, R, L, C, BR=16, BL=max(16, n(L)), BC=max(16, n(C)))
        return y
