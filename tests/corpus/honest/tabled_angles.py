"""Rows of 16 bits and a table of 32: the product is as exact as the table.

task: tabled_angles
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def wave(x, table, y, n, C, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    v = tl.load(x + i, mask=mask, other=0.0)
    w = tl.load(table + i % C, mask=mask, other=0.0)
    tl.store(y + i, v.to(tl.float32) * w, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("table", torch.sin(0.1 + torch.arange(features).float()))

    def forward(self, x):
        assert x.dtype == torch.bfloat16
        assert x.shape[-1] == self.table.numel()
        x = x.contiguous()
        y, n = torch.empty(x.shape, device=x.device), x.numel()
        wave[(triton.cdiv(n, 1024),)](x, self.table, y, n, x.shape[-1], BLOCK=1024)
        return y
