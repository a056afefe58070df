"""Attention of one new token over a cache, with grouped queries, in bf16: Llama-3-8B, 32 and 8 heads of 128.

The 32 sequences of the batch have between half and all of 4096 places filled. The four queries that share a
key head are the rows of one small product, so the cache is read once.
"""

import torch
from torch import nn

batch_size = 32
kv_heads = 8
queries_each = 4
head_dim = 128
capacity = 4096


class Model(nn.Module):
    def forward(
        self, query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, lengths: torch.Tensor
    ) -> torch.Tensor:
        scores = query @ key_cache.transpose(-2, -1) * query.shape[-1] ** -0.5
        places = torch.arange(key_cache.shape[2], device=query.device)
        beyond = places >= lengths[:, None, None, None]
        weights = scores.float().masked_fill(beyond, float("-inf")).softmax(dim=-1)
        return weights.to(query.dtype) @ value_cache


def get_inputs():
    query = torch.randn(batch_size, kv_heads, queries_each, head_dim, dtype=torch.bfloat16)
    caches = [torch.randn(batch_size, kv_heads, capacity, head_dim, dtype=torch.bfloat16) for _ in range(2)]
    return [query, *caches, torch.randint(capacity // 2, capacity + 1, (batch_size,))]


def get_init_inputs():
    return []
