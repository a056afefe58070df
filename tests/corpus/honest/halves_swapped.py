"""Moves data in its own kernel where libraries are forbidden.

task: halves_swapped
needs: cpu
policy: library_calls=forbid
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def swap(x, y, n, columns, half, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row, column = i // columns, i % columns
    source = row * columns + (column + columns - half) % columns
    tl.store(y + i, tl.load(x + source, mask=i < n), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        columns = x.shape[-1]
        swap[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), columns, columns // 2, BLOCK=1024)
        return y
