"""Each row to e4m3 with a scale of its own, as an honest author writes it.

task: rows_in_eight_bits
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def quantize(x_ptr, q_ptr, scale_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
    scale = tl.maximum(tl.max(tl.abs(x)), 1e-12) / 448.0
    tl.store(q_ptr + row * columns + at, (x / scale).to(tl.float8e4nv), mask=at < columns)
    tl.store(scale_ptr + row, scale)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        x = x.contiguous()
        q = torch.empty_like(x, dtype=torch.float8_e4m3fn)
        scale = torch.empty((rows, 1), dtype=x.dtype, device=x.device)
        quantize[(rows,)](x, q, scale, columns, BLOCK=triton.next_power_of_2(columns))
        return q, scale
