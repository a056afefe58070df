"""A complex running average that the answer follows from, its mean summed in another order; real and imaginary
parts are computed apart, so that a NaN in one does not reach the other.

task: level_of_amplitudes
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def average(x, old, new, y, R, C, BR: tl.constexpr):
    c = tl.program_id(0)
    r = tl.arange(0, BR)
    v = tl.load(x + r * C + c, mask=r < R, other=0.0)
    level = 0.9 * tl.load(old + c) + 0.1 * (tl.sum(v, axis=0) / R)
    tl.store(new + c, level)
    tl.store(y + r * C + c, v * 0.5 + level, mask=r < R)


class ModelNew(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.register_buffer("level", torch.zeros(features, dtype=torch.complex64))

    def forward(self, x):
        x = x.contiguous()
        rows, features, _ = x.shape
        y = torch.empty_like(x)
        new = torch.empty(features, 2, dtype=torch.float32, device=x.device)
        level, size = torch.view_as_real(self.level), triton.next_power_of_2(rows)
        average[(2 * features,)](x, level, new, y, rows, 2 * features, BR=size)
        self.level.copy_(torch.view_as_complex(new))
        return y
