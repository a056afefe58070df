"""A pointwise chain over inputs of any strides: silu(a) * b + c, where b is transposed and c is broadcast.

A broadcast dimension has stride 0 and a transposed input has its strides swapped: passing the strides
reads both where they lie. Copying them to a common contiguous shape first would cost a read and a write
of the whole tensor each. The tile is two-dimensional so that every input is read along its own
contiguous dimension in whole sectors, whichever of the two that is.
"""

from __future__ import annotations

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK_ROWS = 32
BLOCK_COLUMNS = 64
NUM_WARPS = 4


@triton.jit
def strided_chain(
    a_ptr, b_ptr, c_ptr, out_ptr, rows, columns,
    a_row, a_column, b_row, b_column, c_row, c_column,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None].to(tl.int64)
    column = (tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS))[None, :]
    mask = (row < rows) & (column < columns)
    a = tl.load(a_ptr + row * a_row + column * a_column, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + row * b_row + column * b_column, mask=mask, other=0.0).to(tl.float32)
    c = tl.load(c_ptr + row * c_row + column * c_column, mask=mask, other=0.0).to(tl.float32)
    result = a / (1.0 + tl.exp(-a)) * b + c
    tl.store(out_ptr + row * columns + column, result.to(out_ptr.dtype.element_ty), mask=mask)


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(a) * b.T + c


class ModelNew(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        a, b, c = torch.broadcast_tensors(a, b.T, c)  # views: a broadcast dimension gets stride 0
        rows, columns = a.shape
        out = torch.empty(rows, columns, device=a.device, dtype=a.dtype)
        grid = (triton.cdiv(rows, BLOCK_ROWS), triton.cdiv(columns, BLOCK_COLUMNS))
        strided_chain[grid](
            a, b, c, out, rows, columns, *a.stride(), *b.stride(), *c.stride(),
            BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLUMNS=BLOCK_COLUMNS, num_warps=NUM_WARPS,
        )  # fmt: skip
        return out


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(131, 77), torch.randn(77, 131), torch.randn(131, 1)]


def get_init_inputs() -> list[int]:
    return []
