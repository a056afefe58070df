"""Causal attention in one kernel: scores never leave the chip.

A program holds a block of queries and an fp32 accumulator, goes over keys and values block by block and
rescales the accumulator whenever a row's maximum grows. Memory traffic is that of q, k, v and the output;
eager writes and rereads S x S scores per head several times. The causal triangle is honoured by the loop's
bounds: blocks above the diagonal are not computed, and only the blocks on it are masked.
"""

from __future__ import annotations

import math

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK_M = 64
BLOCK_N = 32  # BLOCK_M is a multiple of it
NUM_WARPS = 4
NUM_STAGES = 3


@triton.jit
def attend(
    acc, top, total, q, k_ptr, v_ptr, base, low, high, m, d, S, scale,
    BLOCK_N: tl.constexpr, D: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    for start in range(low, high, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        at = base + n[:, None] * D + d[None, :]
        k = tl.load(k_ptr + at, mask=(n < S)[:, None], other=0.0)
        scores = tl.dot(q, k.T) * scale
        if MASKED:
            scores = tl.where((n[None, :] <= m[:, None]) & (n < S)[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, axis=1))
        p = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(p, axis=1)
        v = tl.load(v_ptr + at, mask=(n < S)[:, None], other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        top = higher
    return acc, top, total


@triton.jit
def flash_forward(
    q_ptr, k_ptr, v_ptr, out_ptr, S, scale, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr
):
    # Late blocks have the most keys: started first, they do not make the tail.
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    base = tl.program_id(1).to(tl.int64) * S * D
    m = block * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)
    at = base + m[:, None] * D + d[None, :]
    q = tl.load(q_ptr + at, mask=(m < S)[:, None], other=0.0)
    acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)
    top = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    edge = block * BLOCK_M
    acc, top, total = attend(
        acc, top, total, q, k_ptr, v_ptr, base, 0, edge, m, d, S, scale, BLOCK_N, D, False
    )
    last = tl.minimum(edge + BLOCK_M, S)
    acc, top, total = attend(
        acc, top, total, q, k_ptr, v_ptr, base, edge, last, m, d, S, scale, BLOCK_N, D, True
    )
    tl.store(out_ptr + at, (acc / total[:, None]).to(out_ptr.dtype.element_ty), mask=(m < S)[:, None])


class Model(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class ModelNew(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, heads, S, D = q.shape
        out = torch.empty_like(q)
        scale = math.log2(math.e) / math.sqrt(D)  # exponentials to base 2: one instruction instead of two
        flash_forward[(triton.cdiv(S, BLOCK_M), batch * heads)](
            q, k, v, out, S, scale, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, D=D,
            num_warps=NUM_WARPS, num_stages=NUM_STAGES,
        )  # fmt: skip
        return out


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(1, 2, 149, 32, dtype=torch.float16) for _ in range(3)]


def get_init_inputs() -> list[int]:
    return []
