"""A few numbers come to the host in one copy, into a tensor that is kept there; the kernel is launched by them.

task: scale_shift
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_shift(x, w, b, y, n, C, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, v * tl.load(w + i % C) + tl.load(b + i % C), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))
        self.first = torch.zeros(4)
        self.scales = torch.tensor([0.5 * i for i in range(1000)])

    def forward(self, x):
        x = x.contiguous()
        y, n = torch.empty_like(x), x.numel()
        self.first.copy_(x.view(-1)[:4])
        host = torch.zeros(1000)
        host.copy_(self.scales * 2.0)  # of any size: it was never on the device
        block = 512 if max(self.first.tolist()) > host[1].item() else 1024
        scale_shift[(triton.cdiv(n, block),)](x, self.weight, self.bias, y, n, x.shape[-1], BLOCK=block)
        return y
