"""GeGLU with the tanh form of GELU in bf16: Gemma-2-9B, gate and value of 14336 features each."""

import torch
import torch.nn.functional as F
from torch import nn

tokens = 8192
features = 14336


class Model(nn.Module):
    def forward(self, gate: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return F.gelu(gate, approximate="tanh") * value


def get_inputs():
    return [torch.randn(tokens, features, dtype=torch.bfloat16) for _ in range(2)]


def get_init_inputs():
    return []
