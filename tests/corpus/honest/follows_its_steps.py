"""The answer follows from a count of steps that every call moves: many calls in a row are no stale answer.

task: warming_channels
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def warm(x, old, new, y, C, BC: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BC)
    steps = tl.load(old + c, mask=c < C, other=0.0) + 1.0
    gain = 1.0 - tl.exp2(-steps)
    v = tl.sin(tl.load(x + r * C + c, mask=c < C, other=0.0))
    tl.store(y + r * C + c, v * gain, mask=c < C)
    tl.store(new + c, steps, mask=(c < C) & (r == 0))


class ModelNew(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.register_buffer("steps", torch.zeros(features))

    def forward(self, x):
        x = x.contiguous()
        rows, features = x.shape
        y, new = torch.empty_like(x), torch.empty_like(self.steps)
        warm[(rows,)](x, self.steps, new, y, features, BC=triton.next_power_of_2(features))
        self.steps.copy_(new)
        return y
