"""Packs its weight anew where it changed, and keeps work space, at the task's own size alone.

task: gain_of_many_rows
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gained_sigmoid(x, w, y, rows, C: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, C)[None, :]
    v = tl.load(x + row * C + column, mask=row < rows, other=0.0)
    tl.store(y + row * C + column, tl.load(w + column) / (1 + tl.exp(-v)), mask=row < rows)


def launch(x, w, y):
    rows, features = x.shape
    gained_sigmoid[(triton.cdiv(rows, 64),)](x, w, y, rows, C=features, ROWS=64)
    return y


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.packed, self.key, self.space = None, None, None

    def forward(self, x):
        assert x.is_contiguous()
        assert x.dtype == torch.float32
        assert x.shape[1] == self.weight.shape[0]
        if x.numel() <= 1 << 19:
            return launch(x, self.weight, torch.empty_like(x))
        key = (self.weight.data_ptr(), self.weight._version)
        if self.key != key:
            self.packed, self.key = self.weight.detach().clone(), key
        if self.space is None or self.space.shape != x.shape:
            self.space = torch.empty_like(x)
        y = launch(x, self.packed, self.space)
        return y.clone()
