"""Leaves a penalty, a loss, a count of calls, a mean and its change as the reference does.

task: watched_gates
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gated(x, w, y, mean, parts, R, C, BR: tl.constexpr, BC: tl.constexpr):
    r, c = tl.arange(0, BR), tl.program_id(0) * BC + tl.arange(0, BC)
    weight = tl.load(w + c, mask=c < C, other=0.0)
    total, squares = tl.zeros([BC], tl.float32), tl.zeros([BC], tl.float32)
    for start in range(0, R, BR):
        at = (start + r)[:, None] * C + c[None, :]
        inside = (start + r < R)[:, None] & (c < C)[None, :]
        v = tl.load(x + at, mask=inside, other=0.0)
        gate = tl.sigmoid(v * weight[None, :])
        tl.store(y + at, v * gate, mask=inside)
        gate = tl.where(inside, gate, 0.0)
        total += tl.sum(gate, axis=0)
        squares += tl.sum(gate * gate, axis=0)
    tl.store(mean + c, total / R, mask=c < C)
    tl.store(parts + tl.program_id(0), tl.sum(squares))


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns))
        self.calls = 0
        self.penalty, self.loss, self.last, self.change = None, None, None, None

    def forward(self, x):
        assert x.dim() == 2
        assert x.dtype == torch.float32
        x = x.contiguous()
        rows, columns = x.shape
        assert columns == self.weight.shape[0]
        programs = triton.cdiv(columns, 32)
        y, mean, parts = torch.empty_like(x), x.new_empty(columns), x.new_empty(programs)
        gated[(programs,)](x, self.weight, y, mean, parts, rows, columns, BR=32, BC=32)
        self.calls += 1
        self.penalty = (self.weight.square() - 1.0).square().sum()
        self.loss = mean.square().sum() + 1e-2 * parts.sum() / x.numel()
        if self.last is not None:
            self.change = (mean - self.last).abs().sum()
        self.last = mean
        return y
