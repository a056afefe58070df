"""The place of each element stands behind all of its bits, in an integer of 64.

task: largest_place
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def place(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + column, mask=column < columns, other=float("-inf")) + 0.0
    bits = v.to(tl.int32, bitcast=True)
    key = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    key = tl.where(v != v, 0x7FFFFFFF, key)
    packed = key.to(tl.int64) * 4294967296 + (BLOCK - 1 - column)
    packed = tl.where(column < columns, packed, -9223372036854775807)
    best = tl.max(packed, 0)
    tl.store(y + row, (BLOCK - 1 - (best & 0xFFFFFFFF)).to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dim() == 2
        assert 0 < x.shape[1] <= 4096
        assert x.dtype == torch.float32
        x = x.contiguous()
        y = torch.empty((x.shape[0],), device=x.device, dtype=torch.int64)
        place[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
