"""A running sum along rows, first draft: one program and one block per row."""

import torch
import triton
import triton.language as tl


@triton.jit
def running_sum(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    where = tl.arange(0, BLOCK)
    inside = where < columns
    values = tl.load(x + row + where, mask=inside, other=0.0)
    tl.store(y + row + where, tl.cumsum(values, 0), mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        out = torch.empty_like(x)
        running_sum[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
