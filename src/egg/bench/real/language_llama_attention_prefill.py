"""Attention of a Llama-3-8B layer at prefill with its projections, bf16.

2048 tokens, 32 query and 8 key heads of 128. Cosines and sines of the rotary embedding come from positions;
the causal attention shares key heads.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 1
tokens = 2048
kv_heads = 8
queries_each = 4
head_dim = 128


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class Model(nn.Module):
    inv_freq: torch.Tensor

    def __init__(self, kv_heads: int, queries_each: int, head_dim: int, theta: float):
        super().__init__()
        dim, self.head_dim = kv_heads * queries_each * head_dim, head_dim
        self.q_proj = nn.Linear(dim, dim, bias=False)
        self.k_proj = nn.Linear(dim, kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(dim, kv_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)
        self.to(torch.bfloat16)
        exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
        self.register_buffer("inv_freq", 1.0 / theta**exponents, persistent=False)

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        shape = (*x.shape[:-1], -1, self.head_dim)
        q = self.q_proj(x).view(shape).transpose(1, 2)
        k = self.k_proj(x).view(shape).transpose(1, 2)
        v = self.v_proj(x).view(shape).transpose(1, 2)
        freqs = position_ids[:, :, None].float() * self.inv_freq
        emb = torch.cat((freqs, freqs), dim=-1)
        cos, sin = emb.cos().to(x.dtype).unsqueeze(1), emb.sin().to(x.dtype).unsqueeze(1)
        q = q * cos + rotate_half(q) * sin
        k = k * cos + rotate_half(k) * sin
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(x.shape))


def get_inputs():
    x = torch.randn(batch_size, tokens, kv_heads * queries_each * head_dim, dtype=torch.bfloat16)
    first = torch.randint(0, 64, (batch_size, 1))
    return [x, torch.arange(tokens) + first]


def get_init_inputs():
    return [kv_heads, queries_each, head_dim, 500000.0]
