"""Leaves the load of its last call where the reference leaves it.

task: load_of_last_call
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu(x, y, load, R, C, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for r in range(R):
        v = tl.load(x + r * C + c, mask=c < C, other=0.0)
        v = tl.where(v < 0.0, 0.0, v)
        tl.store(y + r * C + c, v, mask=c < C)
        total += v
    tl.store(load + c, total / R, mask=c < C)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.load = None

    def forward(self, x):
        assert x.dim() == 2
        x = x.contiguous()
        rows, columns = x.shape
        y, load = torch.empty_like(x), x.new_empty(columns)
        relu[(triton.cdiv(columns, 64),)](x, y, load, rows, columns, BLOCK=64)
        self.load = load
        return y
