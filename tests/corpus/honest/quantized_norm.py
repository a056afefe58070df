"""Rounds what another order of summation leaves: a float at a boundary goes to the next integer.

task: quantized_norm
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def norm(x, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + column, mask=column < n, other=0.0)
    scaled = v * tl.rsqrt(tl.sum(v * v) / n + 1e-6) * 32.0
    q = libdevice.rint(scaled)
    q = tl.minimum(tl.maximum(q, -127.0), 127.0)
    tl.store(y + row * n + column, q.to(tl.int8), mask=column < n)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dim() == 2
        assert x.dtype == torch.float32
        x = x.contiguous()
        y = torch.empty(x.shape, dtype=torch.int8, device=x.device)
        norm[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
