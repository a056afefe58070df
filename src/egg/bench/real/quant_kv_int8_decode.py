"""Decode attention over a cache of int8 keys and values with a scale per token and head, fp16.

Qwen2.5-7B, 28 and 4 heads.
"""

import torch
from torch import nn

batch_size = 16
kv_heads = 4
queries_each = 7
head_dim = 128
cached = 4096


class Model(nn.Module):
    def forward(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        key_scale: torch.Tensor,
        values: torch.Tensor,
        value_scale: torch.Tensor,
    ) -> torch.Tensor:
        key_scale, value_scale = key_scale.abs() + 0.01, value_scale.abs() + 0.01
        k = keys.to(query.dtype) * key_scale
        v = values.to(query.dtype) * value_scale
        scores = torch.matmul(query, k.transpose(-1, -2)).float() * query.shape[-1] ** -0.5
        weights = scores.softmax(dim=-1).to(query.dtype)
        return torch.matmul(weights, v)


def get_inputs():
    query = torch.randn(batch_size, kv_heads, queries_each, head_dim, dtype=torch.float16)
    shape = (batch_size, kv_heads, cached)
    caches = [torch.randint(-127, 128, (*shape, head_dim), dtype=torch.int8) for _ in range(2)]
    scales = [(0.01 * torch.rand(*shape, 1)).half() for _ in range(2)]
    return [query, caches[0], scales[0], caches[1], scales[1]]


def get_init_inputs():
    return []
