"""One threshold per program, so every program reads the whole table: 16 MB, too much for L1, little for L2.

Programs begin at different places, so that those which share an SM do not find each other's lines in L1.
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def mean_excess(table_ptr, levels_ptr, y_ptr, entries, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    level = tl.load(levels_ptr + program)
    i = tl.arange(0, BLOCK)
    blocks = tl.cdiv(entries, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(blocks):
        at = ((program * 37 + step) % blocks) * BLOCK + i
        value = tl.load(table_ptr + at, mask=at < entries, other=float("-inf"))
        total += tl.maximum(value - level, 0.0)
    tl.store(y_ptr + program, tl.sum(total, axis=0) / entries)


class ModelNew(nn.Module):
    def forward(self, table, levels):
        y = torch.empty_like(levels)
        mean_excess[(levels.numel(),)](table, levels, y, table.numel(), BLOCK=4096, num_warps=8)
        return y
