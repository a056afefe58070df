"""Returns an input itself, as the reference does: it changes when the caller writes to it.

task: next_state
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def step(x, before, state, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + at, mask=inside) - tl.load(before + at, mask=inside)
    tl.store(y + at, tl.sigmoid(v) * tl.load(state + at, mask=inside), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, before, state):
        if not x.shape == before.shape == state.shape:
            raise ValueError("one shape for all")
        if any(t.dtype != torch.float32 for t in (x, before, state)):
            raise TypeError("fp32 only")
        y = torch.empty(x.shape, device=x.device)
        n = y.numel()
        step[(triton.cdiv(n, 1024),)](
            x.contiguous(), before.contiguous(), state.contiguous(), y, n, BLOCK=1024
        )
        return y, x
