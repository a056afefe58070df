"""Reads the mask, though the task's own is true everywhere.

task: masked_softmax
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def masked_rows(x, m, y, rows, C, R: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, BLOCK)
    inside = (r[:, None] < rows) & (c[None, :] < C)
    at = r[:, None] * C + c[None, :]
    v = tl.load(x + at, mask=inside, other=-float("inf"))
    seen = tl.load(m + at, mask=inside, other=0) != 0
    v = tl.where(inside & (seen == 0), -1e9, v)
    e = tl.exp(v - tl.max(v, axis=1)[:, None])
    tl.store(y + at, e / tl.sum(e, axis=1)[:, None], mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, mask):
        x, mask = torch.broadcast_tensors(x, mask)
        x, mask = x.contiguous(), mask.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        block = triton.next_power_of_2(columns)
        masked_rows[(triton.cdiv(rows, 8),)](x, mask.view(torch.uint8), y, rows, columns, R=8, BLOCK=block)
        return y
