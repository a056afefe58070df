"""Adds into its outputs under an autotuner that sets them to zero again.

task: row_moments
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"PARTS": 1}), triton.Config({"PARTS": 2})],
    key=["C"],
    reset_to_zero=["mean", "square"],
)
@triton.jit
def moments(x, mean, square, C, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    row = tl.program_id(0)
    c = tl.program_id(1) * (BLOCK // PARTS) + tl.arange(0, BLOCK // PARTS)
    v = tl.load(x + row * C + c, mask=c < C, other=0.0)
    tl.atomic_add(mean + row, tl.sum(v) / C)
    tl.atomic_add(square + row, tl.sum(v * v) / C)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dim() == 2
        assert x.dtype == torch.float32
        x = x.contiguous()
        rows, columns = x.shape
        block = triton.next_power_of_2(columns)
        mean, square = x.new_zeros(rows), x.new_zeros(rows)
        moments[lambda meta: (rows, meta["PARTS"])](x, mean, square, columns, BLOCK=block)
        return mean, square - mean * mean
