"""Addresses of tensors in a table on the device, as grouped kernels use them; every access is inside.

task: scale_shift
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_shift(table, y, n, C, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(table).to(tl.pointer_type(tl.float32))
    w = tl.load(table + 1).to(tl.pointer_type(tl.float32))
    b = tl.load(table + 2).to(tl.pointer_type(tl.float32))
    tl.store(y + i, tl.load(x + i, mask=mask) * tl.load(w + i % C) + tl.load(b + i % C), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        parts = [x.data_ptr(), self.weight.data_ptr(), self.bias.data_ptr()]
        table = torch.tensor(parts, dtype=torch.int64, device=x.device)
        scale_shift[(triton.cdiv(n, 1024),)](table, y, n, x.shape[-1], BLOCK=1024)
        return y
