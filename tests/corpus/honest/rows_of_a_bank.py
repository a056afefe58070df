"""Rows of a bank that every call moves, and the others, which are stored as they were loaded.

task: bank_of_rows
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def centre(x, y, bank, R, C, MOVED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = c < C
    total = tl.zeros([BLOCK], tl.float32)
    for r in range(R):
        total += tl.load(x + r * C + c, mask=mask, other=0.0)
    mean = total / R
    for r in range(R):
        tl.store(y + r * C + c, tl.load(x + r * C + c, mask=mask, other=0.0) - mean, mask=mask)
    for r in range(ROWS):
        old = tl.load(bank + r * C + c, mask=mask, other=0.0)
        row = tl.load(x + r * C + c, mask=mask & (r < MOVED), other=0.0)
        tl.store(bank + r * C + c, tl.where(r < MOVED, 0.9 * old + 0.1 * row, old), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("bank", torch.zeros(16, features))

    def forward(self, x):
        assert x.dim() == 2
        assert x.shape[0] >= 8
        assert x.shape[1] == self.bank.shape[1]
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, cols = x.shape
        centre[(triton.cdiv(cols, 64),)](x, y, self.bank, rows, cols, MOVED=8, ROWS=16, BLOCK=64)
        return y
