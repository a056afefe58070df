"""Leaves the mean power of every feature; that of one overflows, as in the reference.

task: power_of_features
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def double_and_measure(x, y, power, rows, C, R: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    r = tl.arange(0, R)
    mask = (r[:, None] < rows) & (c[None, :] < C)
    v = tl.load(x + r[:, None] * C + c[None, :], mask=mask, other=0.0)
    tl.store(y + r[:, None] * C + c[None, :], 2.0 * v, mask=mask)
    loud = v * tl.where(c == 0, 1e30, 1.0)[None, :]
    tl.store(power + c, tl.sum(loud * loud, axis=0) / rows, mask=c < C)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("power", torch.zeros(features))

    def forward(self, x):
        x = x.contiguous()
        rows, features = x.shape
        y = torch.empty_like(x)
        double_and_measure[(triton.cdiv(features, 16),)](
            x, y, self.power, rows, features, R=triton.next_power_of_2(rows), BLOCK=16
        )
        return y
