"""Euclidean norm of a few very long rows: each row is split over many programs, a second kernel joins them.

One program per row leaves most SMs idle when there are few rows. Two launches read everything once with the
whole GPU; the partial sums are a few kilobytes. The join is a fixed tree, so repeated runs agree bit for
bit, which atomics would not give.
"""

from __future__ import annotations

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS = 528  # about four for each of an H200's 132 SMs
NUM_WARPS = 4


@triton.jit
def partial_squares(x_ptr, part_ptr, columns, stretch, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    split = tl.program_id(1)
    low = split * stretch
    high = tl.minimum(low + stretch, columns)
    total = tl.zeros((BLOCK,), dtype=tl.float32)  # one sum per lane; across lanes only once, at the end
    for start in range(low, high, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < high, other=0.0).to(tl.float32)
        total += x * x
    tl.store(part_ptr + row * tl.num_programs(1) + split, tl.sum(total, axis=0))


@triton.jit
def join_squares(part_ptr, out_ptr, splits, SPLITS: tl.constexpr):
    row = tl.program_id(0)
    s = tl.arange(0, SPLITS)
    parts = tl.load(part_ptr + row * splits + s, mask=s < splits, other=0.0)
    tl.store(out_ptr + row, tl.sqrt_rn(tl.sum(parts, axis=0)))


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.vector_norm(x, dim=1)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, columns = x.shape
        # As many stretches as fill the GPU, each a whole number of blocks and not less than one.
        wanted = max(1, PROGRAMS // rows)
        stretch = triton.cdiv(triton.cdiv(columns, wanted), BLOCK) * BLOCK
        splits = triton.cdiv(columns, stretch)
        part = torch.empty(rows, splits, device=x.device, dtype=torch.float32)
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        partial_squares[(rows, splits)](x, part, columns, stretch, BLOCK=BLOCK, num_warps=NUM_WARPS)
        join_squares[(rows,)](part, out, splits, SPLITS=triton.next_power_of_2(splits), num_warps=1)
        return out


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(3, 20_011)]


def get_init_inputs() -> list[int]:
    return []
