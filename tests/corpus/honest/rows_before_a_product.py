"""Rows taken by an own kernel, the product behind it by a library: part of the program was taken over.

task: rows_times_matrix
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def take_rows(rows, table, y, F, BLOCK: tl.constexpr):
    f = tl.arange(0, BLOCK)
    row = tl.load(rows + tl.program_id(0))
    v = tl.load(table + row * F + f, mask=f < F, other=0.0)
    tl.store(y + tl.program_id(0) * F + f, v, mask=f < F)


class ModelNew(nn.Module):
    def forward(self, rows, table, w):
        assert rows.dim() == 1
        assert table.dim() == 2
        rows, table = rows.contiguous(), table.contiguous()
        features = table.shape[1]
        taken = torch.empty((rows.numel(), features), device=table.device, dtype=table.dtype)
        block = triton.next_power_of_2(features)
        take_rows[(rows.numel(),)](rows, table, taken, features, BLOCK=block)
        return torch.mm(taken, w)
