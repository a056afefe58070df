"""Self-attention of the T5-large encoder, bf16.

512 tokens, 16 heads of 64, a bias per bucket of distance, no scale. Buckets grow exactly for near places
and logarithmically for far ones, and are computed in forward.
"""

import math

import torch
from torch import nn

batch_size = 8
tokens = 512
heads = 16
head_dim = 64
furthest = 128.0


class Model(nn.Module):
    def __init__(self, heads: int, head_dim: int, furthest: float):
        super().__init__()
        dim, self.heads, self.furthest = heads * head_dim, heads, furthest
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.relative_attention_bias = nn.Embedding(32, heads)
        self.layer_norm = nn.RMSNorm(dim, eps=1e-6)
        self.to(torch.bfloat16)

    def bucket(self, apart: torch.Tensor) -> torch.Tensor:
        half = 16
        found = (apart > 0).to(torch.long) * half
        apart = apart.abs()
        exact = half // 2
        far = torch.log(apart.float().clamp(min=1) / exact) / math.log(self.furthest / exact) * (half - exact)
        far = torch.min(exact + far.to(torch.long), torch.full_like(apart, half - 1))
        return found + torch.where(apart < exact, apart, far)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, dim = x.shape
        h = self.layer_norm(x)
        q, k, v = (p(h).view(batch, tokens, self.heads, -1).transpose(1, 2) for p in (self.q, self.k, self.v))
        places = torch.arange(tokens, device=x.device)
        bias = self.relative_attention_bias(self.bucket(places[None, :] - places[:, None])).permute(2, 0, 1)
        scores = torch.matmul(q, k.transpose(3, 2)) + bias.unsqueeze(0)
        weights = torch.softmax(scores.float(), dim=-1).type_as(scores)
        mixed = torch.matmul(weights, v).transpose(1, 2).contiguous().view(batch, tokens, dim)
        return x + self.o(mixed)


def get_inputs():
    return [torch.randn(batch_size, tokens, heads * head_dim, dtype=torch.bfloat16)]


def get_init_inputs():
    return [heads, head_dim, furthest]
