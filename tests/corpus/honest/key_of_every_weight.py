"""A packed copy that follows the address and the version of every weight in it.

task: two_gains
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def pack(w, g, p, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(w + i, mask=i < n, other=0.0), tl.load(g + i, mask=i < n, other=0.0)
    tl.store(p + i, a * b, mask=i < n)


@triton.jit
def scale(x, p, y, n, C, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(y + i, v * tl.load(p + i % C, mask=i < n, other=0.0), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.gain = nn.Parameter(torch.randn(features))
        self.packed = None
        self.key = None

    def forward(self, x):
        assert x.shape[-1] == self.weight.numel()
        x = x.contiguous()
        y = torch.empty_like(x)
        n, C = x.numel(), x.shape[-1]
        key = [(w.data_ptr(), w._version, w.device) for w in (self.weight, self.gain)]
        if self.key != key:
            self.packed = torch.empty_like(self.weight, requires_grad=False)
            pack[(triton.cdiv(C, 256),)](self.weight, self.gain, self.packed, C, BLOCK=256)
            self.key = key
        scale[(triton.cdiv(n, 256),)](x, self.packed, y, n, C, BLOCK=256)
        return y
