"""Frequencies are powers of two: fast angles are off from the reference's, slow ones as exact.

task: angles_of_positions
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def embed(t, y, H: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, H)
    a = tl.load(t + r).to(tl.float32) * tl.exp2(i.to(tl.float32) * (-13.287712379549449 / H))
    tl.store(y + r * 2 * H + i, tl.cos(a))
    tl.store(y + r * 2 * H + H + i, tl.sin(a))


class ModelNew(nn.Module):
    def forward(self, t):
        assert t.dim() == 1
        assert t.dtype == torch.int64
        y = torch.empty((t.shape[0], 64), dtype=torch.float32, device=t.device)
        embed[(t.shape[0],)](t.contiguous(), y, H=32)
        return y
