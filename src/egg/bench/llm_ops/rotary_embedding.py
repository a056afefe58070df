"""Rotary position embedding of queries and keys in bf16: Llama-3-8B, 32 query and 8 key heads of 128.

The halves of a head are turned against each other (the layout of the published weights, not the interleaved
one). The cosines and sines are made once per forward of the whole model and are therefore inputs here.
"""

import torch
from torch import nn

batch_size = 2
sequence = 4096
query_heads = 32
kv_heads = 8
head_dim = 128
theta = 500000.0


class Model(nn.Module):
    def forward(
        self, query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return query * cos + self.turned(query) * sin, key * cos + self.turned(key) * sin

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat((-second, first), dim=-1)


def get_inputs():
    query = torch.randn(batch_size, query_heads, sequence, head_dim, dtype=torch.bfloat16)
    key = torch.randn(batch_size, kv_heads, sequence, head_dim, dtype=torch.bfloat16)
    frequencies = theta ** (-torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.arange(sequence).float()[:, None] * frequencies
    angles = torch.cat((angles, angles), dim=-1)
    return [query, key, angles.cos().bfloat16(), angles.sin().bfloat16()]


def get_init_inputs():
    return []
