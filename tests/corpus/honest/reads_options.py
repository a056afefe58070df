"""Reads an option out of the dictionary, and leaves it as it is.

task: slope_of_options
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sigmoid(x, y, slope, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(y + i, 1.0 / (1.0 + tl.exp(-slope * v)), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x, options):
        assert x.dtype == torch.float32
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        sigmoid[(triton.cdiv(n, 512),)](x, y, options["slope"], n, BLOCK=512)
        return y
