"""Activations quantised per token, int8 weights with a scale per output, bf16 outside: Llama-3-8B in W8A8.

The key and value projections, 4096 to 2 x 1024, for 2048 tokens. The codes are whole numbers up to 127, which
bf16 holds exactly; a kernel may multiply them as int8.
"""

import torch
import torch.nn.functional as F
from torch import nn

tokens = 2048
in_features = 4096
out_features = 2048


class Model(nn.Module):
    weight: torch.Tensor
    weight_scale: torch.Tensor

    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.register_buffer(
            "weight", torch.randint(-127, 128, (out_features, in_features), dtype=torch.int8)
        )
        scale = (0.5 + torch.rand(out_features)) / (73.0 * in_features**0.5)
        self.register_buffer("weight_scale", scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        scale = wide.abs().amax(dim=-1, keepdim=True).clamp_min(1e-8) / 127.0
        codes = torch.round(wide / scale).to(x.dtype)
        return (F.linear(codes, self.weight.to(x.dtype)) * scale * self.weight_scale).to(x.dtype)


def get_inputs():
    return [torch.randn(tokens, in_features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [in_features, out_features]
