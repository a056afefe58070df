"""Causal attention of a prompt with grouped queries in bf16: Llama-3-8B, 32 query and 8 key heads of 128.

PyTorch's own fused attention is the reference: a strong opponent.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 2
sequence = 2048
kv_heads = 8
queries_each = 4
head_dim = 128


class Model(nn.Module):
    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


def get_inputs():
    query = torch.randn(batch_size, kv_heads * queries_each, sequence, head_dim, dtype=torch.bfloat16)
    shape = (batch_size, kv_heads, sequence, head_dim)
    return [query, torch.randn(shape, dtype=torch.bfloat16), torch.randn(shape, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
