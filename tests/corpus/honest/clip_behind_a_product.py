"""A library's product with the clipping in an own kernel, which leaves nearly all elements as they are.

task: clipped_product
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def clip(h, y, n, low, high, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(h + i, mask=i < n, other=0.0)
    v = tl.where(v < low, low, tl.where(v > high, high, v))
    tl.store(y + i, v, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x, w):
        h = torch.mm(x, w)
        y = torch.empty_like(h)
        clip[(triton.cdiv(h.numel(), 1024),)](h, y, h.numel(), -12.0, 12.0, BLOCK=1024)
        return y
