"""Every element is added to the one counter by an atomic of its own; they queue at one address."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def count_above(x_ptr, count_ptr, length, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    above = tl.load(x_ptr + i, mask=i < length, other=0.0) > 0
    tl.atomic_add(count_ptr + i * 0, above.to(tl.float32), mask=i < length, sem="relaxed")


class ModelNew(nn.Module):
    def forward(self, x):
        count = torch.zeros(1, device=x.device, dtype=torch.float32)
        count_above[(triton.cdiv(x.numel(), 1024),)](x, count, x.numel(), BLOCK=1024, num_warps=4)
        return count
