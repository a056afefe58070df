"""The first product of an OPT-13B feed-forward block with int8 weights, fp16 activations.

5120 to 20480, ReLU, 16 tokens.
"""

import torch
import torch.nn.functional as F
from torch import nn

tokens = 16
in_features = 5120
out_features = 20480


class Model(nn.Module):
    weight: torch.Tensor
    scale: torch.Tensor

    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.register_buffer(
            "weight", torch.randint(-127, 128, (out_features, in_features), dtype=torch.int8)
        )
        scale = (0.5 + torch.rand(out_features)) / (73.0 * in_features**0.5)
        self.register_buffer("scale", scale.half())
        self.bias = nn.Parameter(torch.randn(out_features, dtype=torch.float16) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(F.linear(x, self.weight.to(x.dtype)) * self.scale + self.bias)


def get_inputs():
    return [torch.randn(tokens, in_features, dtype=torch.float16)]


def get_init_inputs():
    return [in_features, out_features]
