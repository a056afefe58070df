"""A sum over the middle dimension, first draft: one program per 128 columns, one row at a time."""

import torch
import triton
import triton.language as tl

BLOCK = 128


@triton.jit
def middle_sum(x, y, rows, columns, BLOCK: tl.constexpr):
    batch = tl.program_id(0).to(tl.int64)
    where = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = where < columns
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(rows):
        total += tl.load(x + (batch * rows + row) * columns + where, mask=inside, other=0.0)
    tl.store(y + batch * columns + where, total, mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        batch, rows, columns = x.shape
        out = torch.empty((batch, 1, columns), device=x.device, dtype=x.dtype)
        middle_sum[(batch, triton.cdiv(columns, BLOCK))](x, out, rows, columns, BLOCK=BLOCK)
        return out
