"""A DiT-XL/2 block with adaLN-Zero, bf16.

256 tokens of width 1152, 16 heads, six modulations from one vector.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 16
tokens = 256
heads = 16
head_dim = 72


def modulate(x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class Model(nn.Module):
    def __init__(self, heads: int, head_dim: int):
        super().__init__()
        dim, self.heads = heads * head_dim, heads
        self.norm1 = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim)
        )
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(dim, 6 * dim))
        self.to(torch.bfloat16)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        batch, tokens, dim = x.shape
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(condition).chunk(6, dim=1)
        qkv = self.qkv(modulate(self.norm1(x), shift1, scale1)).reshape(batch, tokens, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, dim)
        x = x + gate1.unsqueeze(1) * self.proj(mixed)
        return x + gate2.unsqueeze(1) * self.mlp(modulate(self.norm2(x), shift2, scale2))


def get_inputs():
    x = torch.randn(batch_size, tokens, heads * head_dim, dtype=torch.bfloat16)
    return [x, torch.randn(batch_size, heads * head_dim, dtype=torch.bfloat16)]


def get_init_inputs():
    return [heads, head_dim]
