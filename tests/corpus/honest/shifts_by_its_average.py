"""Sums what is left of a column behind its running mean, so that the sum has digits to spare.

task: tracked_mean
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def centre(x, y, running, steps, R, C, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = c < C
    old = tl.load(running + c, mask=mask, other=0.0)
    total = tl.zeros([BLOCK], tl.float32)
    for r in range(R):
        total += tl.load(x + r * C + c, mask=mask, other=0.0) - old
    mean = old + total / R
    for r in range(R):
        tl.store(y + r * C + c, tl.load(x + r * C + c, mask=mask, other=0.0) - mean, mask=mask)
    tl.store(running + c, 0.9 * old + 0.1 * mean, mask=mask)


@triton.jit
def count(steps):
    tl.store(steps, tl.load(steps) + 1.0)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("running", torch.zeros(features))
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x):
        assert x.dim() == 2
        assert x.shape[1] == self.running.shape[0]
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, cols = x.shape
        centre[(triton.cdiv(cols, 64),)](x, y, self.running, self.steps, rows, cols, BLOCK=64)
        count[(1,)](self.steps)
        return y
