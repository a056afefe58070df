"""Running sum along a few very long rows: sums of stretches first, then every stretch scans by itself.

A walk with a carry uses one program per row. Here a first kernel sums each stretch; in the second each
program adds up the totals of the stretches before its own (a handful of values from L2) and scans with
that as its carry. Two reads and one write, but by the whole GPU.
"""

from __future__ import annotations

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK = 512
PROGRAMS = 264  # about two for each of an H200's 132 SMs
NUM_WARPS = 4


@triton.jit
def stretch_sums(x_ptr, sum_ptr, columns, stretch, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    low = tl.program_id(1) * stretch
    high = tl.minimum(low + stretch, columns)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(low, high, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row + at, mask=at < high, other=0.0).to(tl.float32)
    tl.store(sum_ptr + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), tl.sum(total, axis=0))


@triton.jit
def stretch_scans(x_ptr, sum_ptr, out_ptr, columns, stretch, BLOCK: tl.constexpr, STRETCHES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    s = tl.arange(0, STRETCHES)
    before = s < tl.program_id(1)
    carry = tl.sum(
        tl.load(sum_ptr + tl.program_id(0) * tl.num_programs(1) + s, mask=before, other=0.0), axis=0
    )
    low = tl.program_id(1) * stretch
    high = tl.minimum(low + stretch, columns)
    for start in range(low, high, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + at, mask=at < high, other=0.0).to(tl.float32)
        tl.store(
            out_ptr + row + at, (carry + tl.cumsum(x, axis=0)).to(out_ptr.dtype.element_ty), mask=at < high
        )
        carry += tl.sum(x, axis=0)


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, dim=1)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, columns = x.shape
        stretch = triton.cdiv(triton.cdiv(columns, max(1, PROGRAMS // rows)), BLOCK) * BLOCK
        stretches = triton.cdiv(columns, stretch)
        sums = torch.empty(rows, stretches, device=x.device, dtype=torch.float32)
        out = torch.empty_like(x)
        grid = (rows, stretches)
        stretch_sums[grid](x, sums, columns, stretch, BLOCK=BLOCK, num_warps=NUM_WARPS)
        stretch_scans[grid](
            x, sums, out, columns, stretch, BLOCK=BLOCK,
            STRETCHES=triton.next_power_of_2(stretches), num_warps=NUM_WARPS,
        )  # fmt: skip
        return out


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 5003)]


def get_init_inputs() -> list[int]:
    return []
