"""A frozen linear layer with a low-rank update, in bf16: Llama-3-8B, 4096 to 4096, rank 16, alpha 32.

Both factors are random, as after some training; a fresh second factor would be zero and the update nothing.
"""

import torch
from torch import nn

tokens = 4096
hidden = 4096
rank = 16
scaling = 2.0


class Model(nn.Module):
    def __init__(self, features: int, rank: int, scaling: float):
        super().__init__()
        self.base = nn.Linear(features, features, bias=False, dtype=torch.bfloat16)
        self.down = nn.Linear(features, rank, bias=False, dtype=torch.bfloat16)
        self.up = nn.Linear(rank, features, bias=False, dtype=torch.bfloat16)
        self.scaling = scaling

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x)) * self.scaling


def get_inputs():
    return [torch.randn(tokens, hidden, dtype=torch.bfloat16)]


def get_init_inputs():
    return [hidden, rank, scaling]
