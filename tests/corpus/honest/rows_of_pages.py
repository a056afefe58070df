"""A gather takes every element as it is.

task: rows_of_pages
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gathered(pages, table, y, COUNT, SIZE, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    at = tl.load(table + r)
    at = tl.where(at < 0, at + COUNT, at)
    i = tl.arange(0, BLOCK)
    v = tl.load(pages + at * SIZE + i, mask=i < SIZE, other=0.0)
    tl.store(y + r * SIZE + i, v, mask=i < SIZE)


class ModelNew(nn.Module):
    def forward(self, pages, table):
        assert pages.dtype == torch.bfloat16
        pages, table = pages.contiguous(), table.contiguous()
        count, rows, width = pages.shape
        y = pages.new_empty(table.shape[0] * rows, width)
        block = triton.next_power_of_2(rows * width)
        gathered[(table.shape[0],)](pages, table, y, count, rows * width, BLOCK=block)
        return y
