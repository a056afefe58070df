"""Attention of one new query per sequence over a long cache of keys, with several query heads per key head.

There are only batch x key-heads independent pieces of work, far fewer than a GPU has SMs, so the keys are
split as well: each program attends over a stretch of them and writes an unnormalized result with its
maximum and sum; a second kernel joins the stretches. Query heads that share a key head are the rows of one
block, so that keys and values are read once for all of them, which is all the traffic there is.
"""

from __future__ import annotations

import math

import torch
import torch.nn as nn
import triton
import triton.language as tl

SPLITS = 4  # about 2 x SMs / (batch x key heads)
BLOCK_N = 32
NUM_WARPS = 4
NUM_STAGES = 3


@triton.jit
def attend_stretch(
    q_ptr, k_ptr, v_ptr, part_ptr, top_ptr, total_ptr, S, stretch, scale,
    GROUP: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0)  # a (sequence, key head)
    split = tl.program_id(1)
    g = tl.arange(0, ROWS)  # query heads of the group, padded to 16 rows for tl.dot
    d = tl.arange(0, D)
    q = tl.load(q_ptr + (head * GROUP + g)[:, None] * D + d[None, :], mask=(g < GROUP)[:, None], other=0.0)
    acc = tl.zeros((ROWS, D), dtype=tl.float32)
    top = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    low = split * stretch
    high = tl.minimum(low + stretch, S)
    base = head.to(tl.int64) * S * D
    for start in range(low, high, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        at = base + n[:, None] * D + d[None, :]
        k = tl.load(k_ptr + at, mask=(n < high)[:, None], other=0.0)
        scores = tl.dot(q, k.T) * scale
        scores = tl.where((n < high)[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, axis=1))
        p = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(p, axis=1)
        v = tl.load(v_ptr + at, mask=(n < high)[:, None], other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        top = higher
    # A stretch beyond the end writes acc 0, total 0 and maximum -inf, which the join leaves out.
    row = (head * GROUP + g) * tl.num_programs(1) + split
    tl.store(part_ptr + row[:, None] * D + d[None, :], acc, mask=(g < GROUP)[:, None])
    tl.store(top_ptr + row, top, mask=g < GROUP)
    tl.store(total_ptr + row, total, mask=g < GROUP)


@triton.jit
def join_stretches(part_ptr, top_ptr, total_ptr, out_ptr, splits, SPLITS: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(0)
    s = tl.arange(0, SPLITS)
    d = tl.arange(0, D)
    tops = tl.load(top_ptr + head * splits + s, mask=s < splits, other=float("-inf"))
    totals = tl.load(total_ptr + head * splits + s, mask=s < splits, other=0.0)
    weight = tl.exp2(tops - tl.max(tops, axis=0))
    at = (head * splits + s)[:, None] * D + d[None, :]
    parts = tl.load(part_ptr + at, mask=(s < splits)[:, None], other=0.0)
    result = tl.sum(parts * weight[:, None], axis=0) / tl.sum(totals * weight, axis=0)
    tl.store(out_ptr + head * D + d, result.to(out_ptr.dtype.element_ty))


class Model(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        return nn.functional.scaled_dot_product_attention(q, k, v)


class ModelNew(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, heads, _, D = q.shape  # one query per sequence
        key_heads, S = k.shape[1:3]
        group = heads // key_heads
        stretch = triton.cdiv(triton.cdiv(S, SPLITS), BLOCK_N) * BLOCK_N
        part = torch.empty(batch * heads, SPLITS, D, device=q.device, dtype=torch.float32)
        top = torch.empty(batch * heads, SPLITS, device=q.device, dtype=torch.float32)
        total = torch.empty_like(top)
        out = torch.empty_like(q)
        attend_stretch[(batch * key_heads, SPLITS)](
            q, k, v, part, top, total, S, stretch, math.log2(math.e) / math.sqrt(D),
            GROUP=group, ROWS=max(16, triton.next_power_of_2(group)), BLOCK_N=BLOCK_N, D=D,
            num_warps=NUM_WARPS, num_stages=NUM_STAGES,
        )  # fmt: skip
        join_stretches[(batch * heads,)](
            part, top, total, out, SPLITS, SPLITS=triton.next_power_of_2(SPLITS), D=D, num_warps=1
        )
        return out


def get_inputs() -> list[torch.Tensor]:
    q = torch.randn(2, 8, 1, 64, dtype=torch.float16)
    k, v = (torch.randn(2, 2, 203, 64, dtype=torch.float16) for _ in range(2))
    return [q, k, v]


def get_init_inputs() -> list[int]:
    return []
