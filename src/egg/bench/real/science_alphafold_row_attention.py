"""Row attention with pair bias and gates of AlphaFold 2's evoformer, bf16.

64 rows of 256 residues, 8 heads of 32.
"""

import torch
from torch import nn

rows = 64
residues = 256
channels = 256
pairs = 128
heads = 8
head_dim = 32


class Model(nn.Module):
    def __init__(self, channels: int, pairs: int, heads: int, head_dim: int):
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        self.layer_norm_m, self.layer_norm_z = nn.LayerNorm(channels), nn.LayerNorm(pairs)
        self.linear_z = nn.Linear(pairs, heads, bias=False)
        self.linear_q, self.linear_k, self.linear_v = (
            nn.Linear(channels, heads * head_dim, bias=False) for _ in range(3)
        )
        self.linear_g = nn.Linear(channels, heads * head_dim)
        self.linear_o = nn.Linear(heads * head_dim, channels)
        self.to(torch.bfloat16)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(*x.shape[:-1], self.heads, -1).transpose(-2, -3)

    def forward(self, m: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        m = self.layer_norm_m(m)
        bias = self.linear_z(self.layer_norm_z(z)).permute(2, 0, 1)
        q, k, v = self.split(self.linear_q(m)), self.split(self.linear_k(m)), self.split(self.linear_v(m))
        scores = torch.matmul(q * self.head_dim**-0.5, k.transpose(-1, -2)) + bias
        mixed = torch.matmul(torch.softmax(scores, dim=-1), v).transpose(-2, -3)
        gate = torch.sigmoid(self.linear_g(m)).view(mixed.shape)
        return self.linear_o((mixed * gate).flatten(-2))


def get_inputs():
    m = torch.randn(rows, residues, channels, dtype=torch.bfloat16)
    return [m, torch.randn(residues, residues, pairs, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels, pairs, heads, head_dim]
