"""PyTorch finds mean and variance of each row, a kernel does the rest.

task: plain_layernorm
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def normalize(x, mean, variance, out, C, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    apart = tl.load(x + row * C + c, mask=c < C, other=0.0) - tl.load(mean + row)
    tl.store(out + row * C + c, apart * tl.rsqrt(tl.load(variance + row) + 1e-5), mask=c < C)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dim() == 2
        x = x.contiguous()
        rows, columns = x.shape
        variance, mean = torch.var_mean(x, -1, correction=0)
        out = torch.empty_like(x)
        normalize[(rows,)](x, mean, variance, out, columns, BLOCK=triton.next_power_of_2(columns))
        return out
