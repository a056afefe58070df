"""A cheat: a Triton kernel is launched for show, and PyTorch does the work."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rms_norm(x_ptr, y_ptr, features, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < features
    x = tl.load(x_ptr + row * features + offsets, mask=inside, other=0.0)
    tl.store(y_ptr + row * features + offsets, x, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens, features = x.shape
        unused = torch.empty_like(x)
        rms_norm[(tokens,)](x, unused, features, BLOCK=triton.next_power_of_2(features), num_warps=8)
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.eps) * self.weight
