"""Softmax of rows that fit into registers: one read, one write, three steps in between on the chip.

The row is covered by two pieces instead of one padded to the next power of two: 1,100 columns are 1024 + 128,
not 2048. What is padded is held in registers and computed on as well, so a row a little over a power of two
would otherwise cost nearly double. Rows like 50,304 want a third piece: 32768 + 16384 + 2048.
"""

from __future__ import annotations

import torch
import torch.nn as nn
import triton
import triton.language as tl

NUM_WARPS = 8  # so that (FIRST + SECOND) / (32 * NUM_WARPS) values per thread stay below about 64


@triton.jit
def softmax_rows(x_ptr, out_ptr, columns, stride, FIRST: tl.constexpr, SECOND: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    a = tl.arange(0, FIRST)
    b = FIRST + tl.arange(0, SECOND)
    # The first piece is whole by construction (FIRST <= columns): no mask, full-width loads.
    x = tl.load(x_ptr + row * stride + a).to(tl.float32)
    y = tl.load(x_ptr + row * stride + b, mask=b < columns, other=float("-inf")).to(tl.float32)
    top = tl.maximum(tl.max(x, axis=0), tl.max(y, axis=0))
    x = tl.exp(x - top)
    y = tl.exp(y - top)
    scale = 1.0 / (tl.sum(x, axis=0) + tl.sum(y, axis=0))
    tl.store(out_ptr + row * columns + a, (x * scale).to(out_ptr.dtype.element_ty))
    tl.store(out_ptr + row * columns + b, (y * scale).to(out_ptr.dtype.element_ty), mask=b < columns)


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        first = triton.next_power_of_2(columns + 1) // 2  # the largest power of two that is not larger
        second = triton.next_power_of_2(max(columns - first, 1))
        out = torch.empty(rows, columns, device=x.device, dtype=x.dtype)
        softmax_rows[(rows,)](x, out, columns, x.stride(0), FIRST=first, SECOND=second, num_warps=NUM_WARPS)
        return out


def get_inputs() -> list[torch.Tensor]:
    return [5.0 * torch.randn(11, 1100)]


def get_init_inputs() -> list[int]:
    return []
