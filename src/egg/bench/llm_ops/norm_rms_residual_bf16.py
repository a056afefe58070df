"""Residual addition and RMSNorm in bf16, as between the blocks of Llama-3-8B (hidden size 4096, eps 1e-5).

Returns the normalised activations and the new residual stream. The statistics are taken in fp32, the
rounding to bf16 happens before the gain, as in the published model.
"""

import torch
from torch import nn

tokens = 8192
hidden = 4096


class Model(nn.Module):
    def __init__(self, features: int, eps: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(1.0 + 0.1 * torch.randn(features, dtype=torch.bfloat16))
        self.eps = eps

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        residual = residual + x
        wide = residual.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype), residual


def get_inputs():
    return [torch.randn(tokens, hidden, dtype=torch.bfloat16) for _ in range(2)]


def get_init_inputs():
    return [hidden]
