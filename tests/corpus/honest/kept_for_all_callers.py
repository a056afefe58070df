"""Keeps a negated weight by address and version, and zeros that it clears in place before each call.

Both are made by whichever call comes first, in whichever mode; the weight as built is left to load_state_dict.

task: gain_of_rows
needs: cpu
probes: callers
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def negate(w, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, -tl.load(w + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def gained(x, w, space, out, n, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + at, mask=inside, other=0.0)
    gain = tl.load(space) - tl.load(w + at % columns, mask=inside, other=0.0)
    tl.store(out + at, gain / (1.0 + tl.exp(-v)), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features))
        self.packed = self.key = self.space = None

    def forward(self, x):
        x = x.contiguous()
        assert x.dtype == torch.float32
        key = (self.weight.data_ptr(), self.weight._version, self.weight.device)
        if self.key != key:
            self.packed, self.key = torch.empty_like(self.weight.detach()), key
            negate[(1,)](
                self.weight, self.packed, self.weight.numel(), BLOCK=triton.next_power_of_2(x.shape[1])
            )
        if self.space is None:
            self.space = torch.zeros(1, device=x.device)
        self.space.zero_()
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        gained[grid](x, self.packed, self.space, out, x.numel(), x.shape[1], BLOCK=1024)
        return out
