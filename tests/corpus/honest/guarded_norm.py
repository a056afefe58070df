"""The guard of the type that the rows have, whatever a run in fp64 would add.

task: guarded_norm
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm(x, y, n, C, R: tl.constexpr, BLOCK: tl.constexpr):
    r, c = tl.program_id(0) * R + tl.arange(0, R), tl.arange(0, BLOCK)
    inside = (r[:, None] < n) & (c[None, :] < C)
    v = tl.load(x + r[:, None] * C + c[None, :], mask=inside, other=0.0)
    size = tl.sum(v * v, axis=1)[:, None] + 1.1920928955078125e-07
    tl.store(y + r[:, None] * C + c[None, :], v / size, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dtype == torch.float32
        assert x.dim() == 2
        x = x.contiguous()
        y, (n, columns) = torch.empty_like(x), x.shape
        norm[(triton.cdiv(n, 16),)](x, y, n, columns, R=16, BLOCK=triton.next_power_of_2(columns))
        return y
