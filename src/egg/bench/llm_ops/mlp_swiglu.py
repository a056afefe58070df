"""SwiGLU of a packed projection in bf16: Llama-3-8B, gate and value side by side, 14336 features each."""

import torch
import torch.nn.functional as F
from torch import nn

tokens = 8192
features = 14336


class Model(nn.Module):
    def forward(self, packed: torch.Tensor) -> torch.Tensor:
        gate, value = packed.chunk(2, dim=-1)
        return F.silu(gate) * value


def get_inputs():
    return [torch.randn(tokens, 2 * features, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
