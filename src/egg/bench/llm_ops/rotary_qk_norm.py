"""RMSNorm of every query and key head, then the rotary embedding: Qwen3-8B in bf16, 32 and 8 heads of 128.

Heads come out of the projections as [batch, sequence, heads, head_dim] and go on to attention the same way.
"""

import torch
from torch import nn

batch_size = 2
sequence = 4096
query_heads = 32
kv_heads = 8
head_dim = 128
theta = 1000000.0


class HeadNorm(nn.Module):
    def __init__(self, features: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(1.0 + 0.1 * torch.randn(features, dtype=torch.bfloat16))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class Model(nn.Module):
    def __init__(self, head_dim: int):
        super().__init__()
        self.query_norm = HeadNorm(head_dim)
        self.key_norm = HeadNorm(head_dim)

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        query, key = self.query_norm(query), self.key_norm(key)
        return query * cos + self.turned(query) * sin, key * cos + self.turned(key) * sin

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat((-second, first), dim=-1)


def get_inputs():
    query = torch.randn(batch_size, sequence, query_heads, head_dim, dtype=torch.bfloat16)
    key = torch.randn(batch_size, sequence, kv_heads, head_dim, dtype=torch.bfloat16)
    frequencies = theta ** (-torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.arange(sequence).float()[:, None] * frequencies
    angles = torch.cat((angles, angles), dim=-1)
    return [query, key, angles.cos().bfloat16(), angles.sin().bfloat16()]


def get_init_inputs():
    return [head_dim]
