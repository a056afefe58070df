"""A block of ViT-L/14 at 224 pixels, bf16: 257 tokens of width 1024, 16 heads, layer norms first."""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 32
tokens = 257
heads = 16
head_dim = 64


class Model(nn.Module):
    def __init__(self, heads: int, head_dim: int):
        super().__init__()
        dim = heads * head_dim
        self.heads = heads
        self.ln_1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.ln_2 = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.fc2 = nn.Linear(4 * dim, dim)
        self.to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, dim = x.shape
        qkv = self.qkv(self.ln_1(x)).reshape(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, tokens, dim))
        return x + self.fc2(F.gelu(self.fc1(self.ln_2(x))))


def get_inputs():
    return [torch.randn(batch_size, tokens, heads * head_dim, dtype=torch.bfloat16)]


def get_init_inputs():
    return [heads, head_dim]
