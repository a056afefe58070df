"""A small branch, computed at every size.

task: faint_branch
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layer(x, w, v, y, n, s, F: tl.constexpr, BM: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    i = tl.arange(0, F)
    a = tl.load(x + m[:, None] * F + i[None, :], mask=m[:, None] < n, other=0.0)
    b = tl.load(w + i[None, :] * F + i[:, None])
    h = tl.dot(a, b, input_precision="ieee")
    c = tl.load(v + i[None, :] * F + i[:, None])
    h += s * tl.dot(a, c, input_precision="ieee")
    at = m[:, None] * F + i[None, :]
    tl.store(y + at, h, mask=m[:, None] < n)


class ModelNew(nn.Module):
    def __init__(self, features: int, scale: float):
        super().__init__()
        self.main = nn.Linear(features, features, bias=False)
        self.branch = nn.Linear(features, features, bias=False)
        self.scale = scale

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[0]
        weights, size = (self.main.weight, self.branch.weight), x.shape[1]
        layer[(triton.cdiv(n, 128),)](x, *weights, y, n, self.scale, F=size, BM=128)
        return y
