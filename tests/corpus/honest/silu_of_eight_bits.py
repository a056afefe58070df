"""Reads e4m3 and writes e5m2, whose conversion ends at the largest number where PyTorch's has infinity.

task: silu_of_eight_bits
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gate(q_ptr, scale_ptr, out_ptr, wide_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(q_ptr + row * columns + at, mask=inside, other=0.0).to(tl.float32) * tl.load(scale_ptr + row)
    y = x * tl.sigmoid(x)
    tl.store(out_ptr + row * columns + at, y.to(tl.float8e5), mask=inside)
    tl.store(wide_ptr + row * columns + at, y.to(tl.bfloat16), mask=inside)


class ModelNew(nn.Module):
    def forward(self, q, scale):
        rows, columns = q.shape
        q = q.contiguous()
        out = torch.empty_like(q, dtype=torch.float8_e5m2)
        wide = torch.empty_like(q, dtype=torch.bfloat16)
        gate[(rows,)](q, scale.contiguous(), out, wide, columns, BLOCK=triton.next_power_of_2(columns))
        return out, wide
