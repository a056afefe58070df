"""One decode step of a Llama-3-8B attention layer, bf16.

16 sequences with 2048 cached tokens, 32 and 8 heads of 128. The new key and value are appended to what the
cache holds; the four queries of a group share their keys.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 16
cached = 2048
kv_heads = 8
queries_each = 4
head_dim = 128


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class Model(nn.Module):
    def __init__(self, kv_heads: int, queries_each: int, head_dim: int):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = kv_heads * queries_each, kv_heads, head_dim
        dim = self.heads * head_dim
        self.wqkv = nn.Linear(dim, (self.heads + 2 * kv_heads) * head_dim, bias=False, dtype=torch.bfloat16)
        self.wo = nn.Linear(dim, dim, bias=False, dtype=torch.bfloat16)

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        packed = self.wqkv(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        q, k, v = packed.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        q = q * cos + rotate_half(q) * sin
        k = k * cos + rotate_half(k) * sin
        keys, values = torch.cat((keys, k), dim=2), torch.cat((values, v), dim=2)
        mixed = F.scaled_dot_product_attention(q, keys, values, enable_gqa=True)
        return self.wo(mixed.transpose(1, 2).flatten(2)), keys, values


def get_inputs():
    dim = kv_heads * queries_each * head_dim
    angles = 6.0 * torch.rand(batch_size, 1, 1, head_dim // 2).repeat(1, 1, 1, 2)
    caches = [torch.randn(batch_size, kv_heads, cached, head_dim, dtype=torch.bfloat16) for _ in range(2)]
    x = torch.randn(batch_size, 1, dim, dtype=torch.bfloat16)
    return [x, angles.cos().bfloat16(), angles.sin().bfloat16(), *caches]


def get_init_inputs():
    return [kv_heads, queries_each, head_dim]
