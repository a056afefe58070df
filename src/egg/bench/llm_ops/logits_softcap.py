"""Soft cap of the final logits in bf16: Gemma-2-9B, 256000 words, 30 tanh(x / 30).

The logits are drawn wide, so that the cap bends them instead of passing them through.
"""

import torch
from torch import nn

tokens = 1024
vocabulary = 256000
cap = 30.0


class Model(nn.Module):
    def __init__(self, cap: float):
        super().__init__()
        self.cap = cap

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        return torch.tanh(logits / self.cap) * self.cap


def get_inputs():
    return [20.0 * torch.randn(tokens, vocabulary, dtype=torch.bfloat16)]


def get_init_inputs():
    return [cap]
