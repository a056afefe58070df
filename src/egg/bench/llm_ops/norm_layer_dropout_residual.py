"""Dropout, residual addition and layer norm in training: BERT-large, width 1024, 512 tokens, p = 0.1, fp32.

Which elements are dropped is an input: a mask of booleans, drawn outside. A fused kernel in the wild draws
it from a generator of its own, but two generators do not agree, and then no output could be checked.
"""

import torch
from torch import nn

batch_size = 32
sequence = 512
width = 1024
probability = 0.1


class Model(nn.Module):
    def __init__(self, features: int, dropout: float):
        super().__init__()
        self.norm = nn.LayerNorm(features, eps=1e-12)
        self.scale = 1.0 / (1.0 - dropout)

    def forward(self, x: torch.Tensor, kept: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self.norm(torch.where(kept, x * self.scale, 0.0) + residual)


def get_inputs():
    x = torch.randn(batch_size, sequence, width)
    kept = torch.rand(batch_size, sequence, width) >= probability
    return [x, kept, torch.randn(batch_size, sequence, width)]


def get_init_inputs():
    return [width, probability]
