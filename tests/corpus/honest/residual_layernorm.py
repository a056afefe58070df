"""Residual addition and layer norm fused; nn.LayerNorm only holds the parameters.

task: residual_layernorm
needs: cpu
policy: library_calls=forbid
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_rows(x, r, w, b, y, rows, C, eps, R: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, BLOCK)
    mask = (row[:, None] < rows) & (c[None, :] < C)
    at = row[:, None] * C + c[None, :]
    v = tl.load(x + at, mask=mask, other=0.0) + tl.load(r + at, mask=mask, other=0.0)
    mean = tl.sum(v, axis=1) / C
    d = tl.where(mask, v - mean[:, None], 0.0)
    var = tl.sum(d * d, axis=1) / C
    scale = tl.load(w + c, mask=c < C, other=0.0)[None, :]
    shift = tl.load(b + c, mask=c < C, other=0.0)[None, :]
    tl.store(y + at, d / tl.sqrt(var + eps)[:, None] * scale + shift, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        rows, features = x.shape
        y = torch.empty_like(x)
        norm = self.norm
        block = triton.next_power_of_2(features)
        norm_rows[(triton.cdiv(rows, 4),)](
            x, residual, norm.weight, norm.bias, y, rows, features, norm.eps, R=4, BLOCK=block
        )
        return y
