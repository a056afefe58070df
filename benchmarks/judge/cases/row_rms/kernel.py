"""One program per row; partial sums stay in registers until the end."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def row_rms(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        v = tl.load(x_ptr + row * columns + start + c, mask=start + c < columns, other=0.0)
        total += v * v
    tl.store(y_ptr + row, tl.sqrt(tl.sum(total, axis=0) / columns))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty((rows,), device=x.device, dtype=x.dtype)
        block = min(4096, triton.next_power_of_2(columns))
        row_rms[(rows,)](x, y, columns, BLOCK=block, num_warps=8)
        return y
