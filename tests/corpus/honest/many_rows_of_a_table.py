"""Moves many rows.

task: many_rows_of_a_table
probes: all
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rows(table, index, y, count, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.load(index + row)
    at = tl.where(at < 0, at + count, at)
    col = tl.arange(0, BLOCK)
    value = tl.load(table + at * width + col, mask=col < width, other=0.0)
    tl.store(y + row.to(tl.int64) * width + col, value, mask=col < width)


class ModelNew(nn.Module):
    def forward(self, table, index):
        assert table.dtype == torch.bfloat16
        assert table.dim() == 2
        assert index.dim() == 1
        table, index = table.contiguous(), index.contiguous()
        count, width = table.shape
        y = table.new_empty(index.shape[0], width)
        block = triton.next_power_of_2(width)
        rows[(index.shape[0],)](table, index, y, count, width, BLOCK=block)
        return y
