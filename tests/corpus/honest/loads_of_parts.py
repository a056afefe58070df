"""Leaves what the reference leaves: in a part, in a dictionary, and as a running average.

task: loads_of_parts
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


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.load = None


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.gate = Gate()
        self.stats = {}
        self.average = torch.zeros(columns)

    def forward(self, x):
        assert x.dim() == 2
        assert x.shape[1] == self.average.shape[0]
        x = x.contiguous()
        rows, columns = x.shape
        y, load = torch.empty_like(x), x.new_empty(columns)
        relu[(triton.cdiv(columns, 64),)](x, y, load, rows, columns, BLOCK=64)
        self.gate.load = load
        self.stats = {"load": load}
        self.average = 0.5 * self.average.to(x.device) + 0.5 * load
        return y
