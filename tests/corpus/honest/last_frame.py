"""An input that begins inside of its storage, at the address that the tensor has.

task: last_frame
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gate(x, by, y, n, power, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + at, mask=inside, other=0.0)
    s = 1.0 / (1.0 + tl.exp(-power * tl.load(by + at, mask=inside, other=0.0)))
    tl.store(y + at, v * s, mask=inside)


def gated(x, by, power):
    y = torch.empty_like(x)
    gate[(triton.cdiv(x.numel(), 1024),)](x, by, y, x.numel(), power, BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        return gated(x, x, 1.0)
