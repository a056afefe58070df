"""Softmax of rows too long for registers: two reads and one write instead of three reads and one write.

Each lane keeps its own running maximum and its own sum of exponentials relative to it, so the loop has no
reduction across threads and no barrier; lanes are joined once behind it. The second read comes from L2
where the rows in flight fit there.
"""

from __future__ import annotations

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK = 512
NUM_WARPS = 4


@triton.jit
def softmax_online(x_ptr, out_ptr, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + lane
        x = tl.load(x_ptr + row * stride + at, mask=at < columns, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(top, x)
        # A lane that has seen only -inf: -inf - -inf would be NaN, so it is measured from 0 until then.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(top - base) + tl.exp(x - base)
        top = higher
    best = tl.max(top, axis=0)
    scale = 1.0 / tl.sum(total * tl.exp(top - best), axis=0)
    # Backwards: the end of the row was read last and is the part most likely still in cache.
    pieces = tl.cdiv(columns, BLOCK)
    for piece in range(pieces):
        at = (pieces - 1 - piece) * BLOCK + lane
        x = tl.load(x_ptr + row * stride + at, mask=at < columns, other=float("-inf")).to(tl.float32)
        tl.store(
            out_ptr + row * columns + at,
            (tl.exp(x - best) * scale).to(out_ptr.dtype.element_ty),
            mask=at < columns,
        )


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        out = torch.empty(rows, columns, device=x.device, dtype=x.dtype)
        softmax_online[(rows,)](x, out, columns, x.stride(0), BLOCK=BLOCK, num_warps=NUM_WARPS)
        return out


def get_inputs() -> list[torch.Tensor]:
    x = 5.0 * torch.randn(5, 1777)
    x[3, :600] = float("-inf")  # masked entries are what real rows have
    return [x]


def get_init_inputs() -> list[int]:
    return []
