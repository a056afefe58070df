"""A small branch, computed at every size.

task: faint_branch
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layer(x, w, v, y, n, s, F: tl.constexpr, BM: tl.constexpr, TILES: tl.constexpr):
    i = tl.arange(0, F)
    b = tl.load(w + i[None, :] * F + i[:, None])
    c = tl.load(v + i[None, :] * F + i[:, None])
    for tile in range(TILES):
        m = (tl.program_id(0) * TILES + tile) * BM + tl.arange(0, BM)
        at = m[:, None] * F + i[None, :]
        a = tl.load(x + at, mask=m[:, None] < n, other=0.0)
        h = tl.dot(a, b, input_precision="ieee")
        h += s * tl.dot(a, c, input_precision="ieee")
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
        layer[(triton.cdiv(n, 128),)](x, *weights, y, n, self.scale, F=size, BM=32, TILES=4)
        return y
