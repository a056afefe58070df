"""Two outputs are parts of one allocation, no element of which belongs to both.

task: halves_twice
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def halve(x, y, n, COPIES: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = 0.5 * tl.load(x + i, mask=i < n)
    for copy in tl.static_range(COPIES):
        tl.store(y + copy * n + i, v, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        both = torch.empty(2, *x.shape, dtype=x.dtype, device=x.device)
        halve[(triton.cdiv(x.numel(), 1024),)](x, both, x.numel(), COPIES=2, BLOCK=1024)
        return both[0], both[1]
