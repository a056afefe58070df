"""Reads two inputs that are halves of one tensor's rows.

task: halves
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rows_kernel(a, b, y, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(a + row * stride + at, mask=at < n, other=float("-inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    other = tl.load(b + row * stride + at, mask=at < n, other=0.0)
    tl.store(y + row * n + at, e / tl.sum(e, axis=0) * other, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, a, b):
        assert a.dtype == torch.float32
        assert a.dim() == 2
        assert a.stride(1) == 1
        assert a.stride(0) >= a.shape[1]
        assert b.dtype == torch.float32
        assert b.shape == a.shape
        assert b.stride() == a.stride()
        rows, n = a.shape
        y = torch.empty(rows, n, device=a.device)
        rows_kernel[(rows,)](a, b, y, a.stride(0), n, BLOCK=triton.next_power_of_2(n))
        return y
