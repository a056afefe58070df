"""Softmax with the maximum subtracted, a few rows per program.

task: row_softmax
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_rows(x, y, rows, C, R: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, BLOCK)
    mask = (r[:, None] < rows) & (c[None, :] < C)
    at = r[:, None] * C + c[None, :]
    v = tl.load(x + at, mask=mask, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=1)[:, None])
    tl.store(y + at, e / tl.sum(e, axis=1)[:, None], mask=mask)


def softmax(x, y):
    rows, columns = x.shape
    softmax_rows[(triton.cdiv(rows, 4),)](x, y, rows, columns, R=4, BLOCK=triton.next_power_of_2(columns))
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        return softmax(x, torch.empty_like(x))
