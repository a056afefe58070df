"""Layer norm and the packed projection of Falcon-7B, bf16.

Width 4544, 71 query heads and one key head of 64.
"""

import torch
from torch import nn

tokens = 2048
heads = 71
head_dim = 64


class Model(nn.Module):
    def __init__(self, heads: int, head_dim: int):
        super().__init__()
        dim, self.heads, self.head_dim = heads * head_dim, heads, head_dim
        self.input_layernorm = nn.LayerNorm(dim, eps=1e-5)
        self.query_key_value = nn.Linear(dim, dim + 2 * head_dim, bias=False)
        self.to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        packed = self.query_key_value(self.input_layernorm(x))
        packed = packed.view(x.shape[0], self.heads + 2, self.head_dim)
        return packed[:, :-2].transpose(0, 1).contiguous(), packed[:, -2], packed[:, -1]


def get_inputs():
    return [torch.randn(tokens, heads * head_dim, dtype=torch.bfloat16)]


def get_init_inputs():
    return [heads, head_dim]
