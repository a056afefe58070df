"""A kernel takes each row's largest score off, which large scores need; PyTorch does the rest.

task: written_attention
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def take_off(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + i, mask=i < columns, other=float("-inf"))
    tl.store(y + row * columns + i, v - tl.max(v), mask=i < columns)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        scores = (q @ k.transpose(-1, -2) / 4.0).contiguous()
        columns = scores.shape[-1]
        z = torch.empty_like(scores)
        take_off[(scores.numel() // columns,)](scores, z, columns, BLOCK=triton.next_power_of_2(columns))
        weights = torch.exp(z)
        return (weights / weights.sum(-1, keepdim=True)) @ v
