"""Columns twelve orders of magnitude apart, each as exact as it can be.

task: gained_bands
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def bands(x, gains, y, n, C, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    gain = tl.load(gains + i % C, mask=mask, other=0.0)
    v = (3.0 + libdevice.tanh(tl.load(x + i, mask=mask, other=0.0))) * gain
    tl.store(y + i, v, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.features = features

    def forward(self, x):
        assert x.shape[-1] == self.features
        x = x.contiguous()
        y, n = torch.empty_like(x), x.numel()
        gains = torch.logspace(-6, 6, self.features, dtype=x.dtype, device=x.device)
        bands[(triton.cdiv(n, 1024),)](x, gains, y, n, x.shape[-1], BLOCK=1024)
        return y
