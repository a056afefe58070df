"""Keeps a running average of loads, as the reference does: this call loads what the last one left there.

task: load_average
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu(x, old, load, y, R, C, S, BR: tl.constexpr, BC: tl.constexpr):
    r, c = tl.arange(0, BR), tl.program_id(0) * BC + tl.arange(0, BC)
    at = r[:, None] * C + c[None, :]
    inside = (r[:, None] < R) & (c[None, :] < C)
    v = tl.load(x + at, mask=inside, other=0.0)
    out = tl.where(v < 0.0, 0.0, v)
    tl.store(y + at, out, mask=inside)
    before = tl.load(old + c * S, mask=c < C, other=0.0)
    tl.store(load + c, 0.9 * before + 0.1 * tl.sum(out, axis=0) / R, mask=c < C)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.load = torch.tensor(0.0)

    def forward(self, x):
        assert x.dim() == 2
        assert x.dtype == torch.float32
        x = x.contiguous()
        rows, columns = x.shape
        old = self.load.to(x.device)
        assert old.dim() == 0 or old.shape[0] == columns
        y, load = torch.empty_like(x), x.new_empty(columns)
        relu[(triton.cdiv(columns, 32),)](
            x, old, load, y, rows, columns, old.dim(), BR=triton.next_power_of_2(rows), BC=32
        )
        self.load = load
        return y
