"""The whole feed-forward block of Qwen2.5-1.5B in bf16: 1536 to 8960 twice, SwiGLU, and back, 4096 tokens."""

import torch
import torch.nn.functional as F
from torch import nn

tokens = 4096
hidden = 1536
intermediate = 8960


class Model(nn.Module):
    def __init__(self, hidden: int, intermediate: int):
        super().__init__()
        self.gate = nn.Linear(hidden, intermediate, bias=False, dtype=torch.bfloat16)
        self.up = nn.Linear(hidden, intermediate, bias=False, dtype=torch.bfloat16)
        self.down = nn.Linear(intermediate, hidden, bias=False, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


def get_inputs():
    return [torch.randn(tokens, hidden, dtype=torch.bfloat16)]


def get_init_inputs():
    return [hidden, intermediate]
