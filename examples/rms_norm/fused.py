"""One program per token: read the row once, write it once."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rms_norm(x_ptr, weight_ptr, y_ptr, features, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < features
    x = tl.load(x_ptr + row * features + offsets, mask=inside, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / features + eps)
    weight = tl.load(weight_ptr + offsets, mask=inside, other=0.0)
    tl.store(y_ptr + row * features + offsets, x * scale * weight, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        tokens, features = x.shape
        y = torch.empty_like(x)
        rms_norm[(tokens,)](
            x, self.weight, y, features, self.eps, BLOCK=triton.next_power_of_2(features), num_warps=8
        )
        return y
