"""Both weights are laid into one storage with room between them.

task: scale_shift
needs: cpu
policy: library_calls=forbid
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_shift(x, w, b, y, C, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < N, other=0.0)
    scale = tl.load(w + i % C, mask=i < N, other=0.0)
    tl.store(y + i, v * scale + tl.load(b + i % C, mask=i < N, other=0.0), mask=i < N)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        features = self.weight.numel()
        whole = fn(torch.zeros(2 * features + 64))
        whole[:features] = self.weight.data
        whole[-features:] = self.bias.data
        self.weight.data, self.bias.data = whole[:features], whole[-features:]
        return self

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        weight, bias = self.weight.contiguous(), self.bias.contiguous()
        scale_shift[(triton.cdiv(x.numel(), 512),)](x, weight, bias, y, x.shape[-1], x.numel(), BLOCK=512)
        return y
