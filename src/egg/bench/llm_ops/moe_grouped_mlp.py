"""Dispatch to experts and their feed-forward blocks in bf16: Granite-3.0-1B-A400M, 32 experts, 1024 to 512.

Every expert takes a fixed number of tokens (8 of 32 experts each, spread evenly), collects them by index and
runs SwiGLU on them: one product per expert, all of them the same size.
"""

import torch
import torch.nn.functional as F
from torch import nn

tokens = 4096
experts = 32
capacity = 1024
hidden = 1024
intermediate = 512


class Model(nn.Module):
    def __init__(self, experts: int, hidden: int, intermediate: int):
        super().__init__()
        up = torch.randn(experts, hidden, 2 * intermediate, dtype=torch.bfloat16)
        down = torch.randn(experts, intermediate, hidden, dtype=torch.bfloat16)
        self.up = nn.Parameter(up * hidden**-0.5)
        self.down = nn.Parameter(down * intermediate**-0.5)

    def forward(self, x: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        gate, value = torch.bmm(x[slots], self.up).chunk(2, dim=-1)
        return torch.bmm(F.silu(gate) * value, self.down)


def get_inputs():
    x = torch.randn(tokens, hidden, dtype=torch.bfloat16)
    return [x, torch.randint(0, tokens, (experts, capacity))]


def get_init_inputs():
    return [experts, hidden, intermediate]
