"""One column of the input is an index: mixed with the other it is one past the table.

task: looked_up
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled(x, table, y, R, E, W, BR: tl.constexpr, BW: tl.constexpr):
    r, w = tl.program_id(0) * BR + tl.arange(0, BR), tl.arange(0, BW)
    entry = tl.load(x + r * 2, mask=r < R, other=0.0).to(tl.int32)
    entry = tl.where(entry < 0, entry + E, entry)
    inside = (r[:, None] < R) & (w[None, :] < W)
    v = tl.load(table + entry[:, None] * W + w[None, :], mask=inside, other=0.0)
    by = tl.load(x + r * 2 + 1, mask=r < R, other=0.0)
    tl.store(y + r[:, None] * W + w[None, :], v * by[:, None], mask=inside)


class ModelNew(nn.Module):
    def __init__(self, entries, width):
        super().__init__()
        self.table = nn.Parameter(torch.randn(entries, width))

    def forward(self, x):
        assert x.dim() == 2
        assert x.shape[1] == 2
        assert x.dtype == torch.float32
        assert self.table.dtype == torch.float32
        x, table = x.contiguous(), self.table.contiguous()
        y = torch.empty(x.shape[0], table.shape[1], device=x.device)
        grid, width = (triton.cdiv(x.shape[0], 64),), triton.next_power_of_2(table.shape[1])
        scaled[grid](x, table, y, x.shape[0], *table.shape, BR=64, BW=width)
        return y
