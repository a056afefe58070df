"""Flash attention: the softmax is kept running, so that scores never leave the chip.

Keys before the block of queries need no mask; only the blocks on the diagonal do.
"""

import math

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def attend(
    q,
    k_base,
    v_base,
    m,
    highest,
    total,
    out,
    first,
    last,
    tokens,
    scale,
    D: tl.constexpr,
    BN: tl.constexpr,
    MASKED: tl.constexpr,
):
    d = tl.arange(0, D)
    for start in range(first, last, BN):
        n = start + tl.arange(0, BN)
        if MASKED:
            k = tl.load(k_base + n[None, :] * D + d[:, None], mask=(n < tokens)[None, :], other=0.0)
            v = tl.load(v_base + n[:, None] * D + d[None, :], mask=(n < tokens)[:, None], other=0.0)
        else:
            k = tl.load(k_base + n[None, :] * D + d[:, None])
            v = tl.load(v_base + n[:, None] * D + d[None, :])
        score = tl.dot(q, k) * scale
        if MASKED:
            score = tl.where((m[:, None] >= n[None, :]) & (n < tokens)[None, :], score, float("-inf"))
        new = tl.maximum(highest, tl.max(score, axis=1))
        p = tl.exp2(score - new[:, None])
        shrink = tl.exp2(highest - new)
        total = total * shrink + tl.sum(p, axis=1)
        out = out * shrink[:, None]
        out = tl.dot(p.to(tl.float16), v, out)
        highest = new
    return highest, total, out


@triton.jit
def causal_attention(
    q_ptr, k_ptr, v_ptr, y_ptr, tokens, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    base = tl.program_id(1).to(tl.int64) * tokens * D
    m = tile * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    at = base + m[:, None] * D + d[None, :]
    q = tl.load(q_ptr + at, mask=(m < tokens)[:, None], other=0.0)
    highest = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    out = tl.zeros((BM, D), tl.float32)
    k_base, v_base = k_ptr + base, v_ptr + base
    highest, total, out = attend(
        q, k_base, v_base, m, highest, total, out, 0, tile * BM, tokens, scale, D, BN, False
    )
    last = tl.minimum((tile + 1) * BM, tokens)
    highest, total, out = attend(
        q, k_base, v_base, m, highest, total, out, tile * BM, last, tokens, scale, D, BN, True
    )
    tl.store(y_ptr + at, (out / total[:, None]).to(tl.float16), mask=(m < tokens)[:, None])


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, heads, tokens, width = q.shape
        y = torch.empty_like(q)
        scale = math.log2(math.e) / math.sqrt(width)
        grid = (triton.cdiv(tokens, 128), batch * heads)
        causal_attention[grid](q, k, v, y, tokens, scale, D=width, BM=128, BN=64, num_warps=8, num_stages=3)
        return y
