"""A buffer that is made of a list: PyTorch imports a module of its own as it makes the first one.

task: scale_shift
needs: cpu

"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_shift(x, w, b, y, n, C: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    c = i % C
    v = tl.load(x + i, mask=mask)
    tl.store(y + i, v * tl.load(w + c) + tl.load(b + c), mask=mask)


def launch(x, w, b, y):
    n = x.numel()
    scale_shift[(triton.cdiv(n, 1024),)](x, w, b, y, n, C=x.shape[-1], BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))
        self.register_buffer("one", torch.tensor([1.0]), persistent=False)

    def forward(self, x):
        x = x.contiguous()
        return launch(x, self.weight, self.bias, torch.empty_like(x))
