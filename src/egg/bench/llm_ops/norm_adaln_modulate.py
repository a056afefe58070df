"""Adaptive layer norm of a diffusion transformer in bf16: DiT-XL/2, width 1152, 256 tokens of a latent image.

The embedding of time step and class becomes shift and scale through SiLU and a linear layer; the tokens are
normalised without gains of their own and modulated.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 64
tokens = 256
width = 1152


class Model(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.modulation = nn.Linear(features, 2 * features, dtype=torch.bfloat16)
        self.norm = nn.LayerNorm(features, eps=1e-6, elementwise_affine=False)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        shift, scale = self.modulation(F.silu(condition)).unsqueeze(1).chunk(2, dim=-1)
        return self.norm(x) * (1 + scale) + shift


def get_inputs():
    x = torch.randn(batch_size, tokens, width, dtype=torch.bfloat16)
    return [x, torch.randn(batch_size, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width]
