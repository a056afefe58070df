"""Residual addition and RMSNorm in fp32: the same layer where a run keeps full precision.

Sizes of Qwen2.5-7B (hidden size 3584, eps 1e-6): a row length that is no power of two.
"""

import torch
from torch import nn

tokens = 8192
hidden = 3584


class Model(nn.Module):
    def __init__(self, features: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(1.0 + 0.1 * torch.randn(features))
        self.eps = eps

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        residual = residual + x
        scale = torch.rsqrt(residual.pow(2).mean(dim=-1, keepdim=True) + self.eps)
        return self.weight * (residual * scale), residual


def get_inputs():
    return [torch.randn(tokens, hidden) for _ in range(2)]


def get_init_inputs():
    return [hidden]
