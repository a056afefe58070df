"""Product with int8 weights and a scale per output, bf16 activations: the down projection of Llama-3-8B.

16 tokens of a decode step, 14336 to 4096. The weights are what must be read, and they are half of bf16.
"""

import torch
import torch.nn.functional as F
from torch import nn

tokens = 16
in_features = 14336
out_features = 4096


class Model(nn.Module):
    weight: torch.Tensor
    scale: torch.Tensor

    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.register_buffer(
            "weight", torch.randint(-127, 128, (out_features, in_features), dtype=torch.int8)
        )
        scale = (0.5 + torch.rand(out_features)) / (73.0 * in_features**0.5)
        self.register_buffer("scale", scale.bfloat16())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight.to(x.dtype)) * self.scale


def get_inputs():
    return [torch.randn(tokens, in_features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [in_features, out_features]
