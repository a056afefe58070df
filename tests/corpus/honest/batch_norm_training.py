"""Batch statistics in training mode, running statistics updated as nn.BatchNorm1d does; it says so in eval mode.

task: batch_norm
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def batch_norm(x, w, b, mean, var, y, rows, C, eps, momentum, R: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    r = tl.arange(0, R)
    mask = (r[:, None] < rows) & (c[None, :] < C)
    v = tl.load(x + r[:, None] * C + c[None, :], mask=mask, other=0.0)
    m = tl.sum(v, axis=0) / rows
    d = tl.where(mask, v - m[None, :], 0.0)
    s = tl.sum(d * d, axis=0) / rows
    ok = c < C
    scale = tl.load(w + c, mask=ok, other=0.0)[None, :]
    shift = tl.load(b + c, mask=ok, other=0.0)[None, :]
    tl.store(y + r[:, None] * C + c[None, :], d / tl.sqrt(s + eps)[None, :] * scale + shift, mask=mask)
    old_mean = tl.load(mean + c, mask=ok, other=0.0)
    old_var = tl.load(var + c, mask=ok, other=0.0)
    tl.store(mean + c, old_mean + momentum * (m - old_mean), mask=ok)
    tl.store(var + c, old_var + momentum * (s * rows / (rows - 1) - old_var), mask=ok)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x):
        if not self.norm.training:
            raise NotImplementedError("training mode only: running statistics are not used")
        x = x.contiguous()
        rows, features = x.shape
        norm = self.norm
        y = torch.empty_like(x)
        batch_norm[(triton.cdiv(features, 16),)](
            x,
            norm.weight,
            norm.bias,
            norm.running_mean,
            norm.running_var,
            y,
            rows,
            features,
            norm.eps,
            norm.momentum,
            R=triton.next_power_of_2(rows),
            BLOCK=16,
        )
        return y
