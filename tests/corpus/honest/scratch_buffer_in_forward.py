"""A buffer that no state_dict holds may come when it is needed.

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
    mask = i < n
    c = i % C
    tl.store(y + i, tl.load(x + i, mask=mask) * tl.load(w + c) + tl.load(b + c), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        assert x.shape[-1] == self.weight.shape[0]
        x = x.contiguous()
        n, width, weight, bias = x.numel(), x.shape[-1], self.weight, self.bias
        y = torch.empty_like(x)
        if not hasattr(self, "ones"):
            self.register_buffer("ones", torch.ones(1, device=x.device), persistent=False)
        bias = bias * self.ones
        scale_shift[(triton.cdiv(n, 1024),)](x, weight, bias, y, n, width, BLOCK=1024)
        return y
