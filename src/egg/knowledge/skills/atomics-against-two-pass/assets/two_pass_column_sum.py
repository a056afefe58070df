"""Sum over the rows (the dimension that is not last) without atomics: partial sums, then a small second pass.

The rows are cut into PARTS, so that a tall matrix fills the GPU although it has few columns. The
second pass reads PARTS rows only. The result is the same in every run, and nothing needs zeroing.
"""

import torch
import triton
import triton.language as tl
from torch import nn

PARTS = 8  # so that column tiles x PARTS is a few programs per SM
ROWS = 32
COLUMNS = 64
WARPS = 4


@triton.jit
def partial_sums(x_ptr, part_ptr, rows, columns, rows_per_part, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    c = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.program_id(1)
    first = part * rows_per_part
    last = tl.minimum(first + rows_per_part, rows)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(first, last, ROWS):
        r = start + tl.arange(0, ROWS)
        inside = (r < last)[:, None] & (c < columns)[None, :]
        x = tl.load(x_ptr + r[:, None].to(tl.int64) * columns + c[None, :], mask=inside, other=0.0)
        total += x.to(tl.float32)
    tl.store(part_ptr + part * columns + c, tl.sum(total, axis=0), mask=c < columns)


@triton.jit
def add_parts(part_ptr, out_ptr, columns, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    c = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    p = tl.arange(0, PARTS)
    parts = tl.load(part_ptr + p[:, None] * columns + c[None, :], mask=(c < columns)[None, :], other=0.0)
    tl.store(out_ptr + c, tl.sum(parts, axis=0).to(out_ptr.dtype.element_ty), mask=c < columns)


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(dim=0)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, columns = x.shape
        parts = torch.empty((PARTS, columns), device=x.device, dtype=torch.float32)
        out = torch.empty((columns,), device=x.device, dtype=x.dtype)
        strips = triton.cdiv(columns, COLUMNS)
        partial_sums[(strips, PARTS)](
            x, parts, rows, columns, triton.cdiv(rows, PARTS), ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS
        )
        add_parts[(strips,)](parts, out, columns, PARTS=PARTS, COLUMNS=COLUMNS, num_warps=WARPS)
        return out


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(1003, 130)]


def get_init_inputs() -> list[int]:
    return []
