"""Rotary embedding of a new key and its place in the cache, one decode step of Llama-3-8B in bf16.

Each of 64 sequences has its own length so far: it decides the angle and the row that is written. The cache
comes back as a new tensor, because a task may not change its inputs; the copy is part of both sides' work.
"""

import torch
from torch import nn

batch_size = 64
kv_heads = 8
head_dim = 128
capacity = 2048
theta = 500000.0


class Model(nn.Module):
    def forward(
        self,
        key: torch.Tensor,
        cache: torch.Tensor,
        lengths: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
    ) -> torch.Tensor:
        cos, sin = cos[lengths][:, None, None, :], sin[lengths][:, None, None, :]
        first, second = key.chunk(2, dim=-1)
        key = key * cos + torch.cat((-second, first), dim=-1) * sin
        rows = lengths[:, None, None, None].expand(key.shape)
        return cache.scatter(2, rows, key)


def get_inputs():
    key = torch.randn(batch_size, kv_heads, 1, head_dim, dtype=torch.bfloat16)
    cache = torch.randn(batch_size, kv_heads, capacity, head_dim, dtype=torch.bfloat16)
    lengths = torch.randint(0, capacity, (batch_size,))
    frequencies = theta ** (-torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.arange(capacity).float()[:, None] * frequencies
    angles = torch.cat((angles, angles), dim=-1)
    return [key, cache, lengths, angles.cos().bfloat16(), angles.sin().bfloat16()]


def get_init_inputs():
    return []
