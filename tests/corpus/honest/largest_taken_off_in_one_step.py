"""Takes the largest score off as a fused multiply-add does, which has no rounding of the product.

Where three factors are thousands, the rounding of the largest score is, too.

task: scores_of_three
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_of_product(a_ptr, b_ptr, c_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < columns
    a = tl.zeros((BLOCK,), tl.float32)
    b = tl.zeros((BLOCK,), tl.float32)
    c = tl.zeros((BLOCK,), tl.float32)
    for row in range(rows):
        a += tl.load(a_ptr + row * columns + at, mask=inside, other=0.0).to(tl.float32)
        b += tl.load(b_ptr + row * columns + at, mask=inside, other=0.0).to(tl.float32)
        c += tl.load(c_ptr + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    product = a * b
    top = tl.max(tl.where(inside, product * c, -float("inf")), axis=0)
    away = (product.to(tl.float64) * c.to(tl.float64) - top.to(tl.float64)).to(tl.float32)
    weights = tl.where(inside, tl.exp(away), 0.0)
    tl.store(y_ptr + at, weights / tl.sum(weights, axis=0), mask=inside)


class ModelNew(nn.Module):
    def forward(self, a, b, c):
        if not a.dim() == 2 or not a.shape == b.shape == c.shape or not 0 < a.shape[1] <= 8192:
            raise ValueError("three matrices of one shape, of up to 8192 columns")
        if any(t.dtype != torch.bfloat16 for t in (a, b, c)):
            raise TypeError("bf16 only")
        a, b, c = a.contiguous(), b.contiguous(), c.contiguous()
        y = torch.empty_like(a[0], dtype=torch.float32)
        softmax_of_product[(1,)](a, b, c, y, a.shape[0], a.shape[1], BLOCK=8192)
        return y
