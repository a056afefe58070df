"""Channels taken by an index that is cast to 32 bits first.

task: grouped_order
needs: cpu
policy: library_calls=forbid
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def take(x, order, y, C, N, BLOCK: tl.constexpr):
    b = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = i < C * N
    channel = tl.load(order + i // N, mask=mask, other=0)
    v = tl.load(x + b * C * N + channel * N + i % N, mask=mask, other=0.0)
    tl.store(y + b * C * N + i, v, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        order = torch.arange(channels).view(4, -1).t().reshape(-1)
        self.register_buffer("order", order.contiguous())

    def forward(self, x):
        x = x.detach().contiguous()
        b, c, n = x.shape
        order = self.order.to(torch.int32)
        y = torch.empty((b, order.numel(), n), device=x.device, dtype=x.dtype)
        take[(b, triton.cdiv(c * n, 1024))](x, order, y, c, n, BLOCK=1024)
        return y
