"""Causal attention with soft-capped scores in bf16: Gemma-2-9B, 16 query and 8 key heads of 256, cap 50.

The queries are drawn wide, so that the cap bends the scores instead of passing them through.
"""

import torch
from torch import nn

batch_size = 1
sequence = 2048
kv_heads = 8
queries_each = 2
head_dim = 256
cap = 50.0


class Model(nn.Module):
    def __init__(self, cap: float):
        super().__init__()
        self.cap = cap

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        key, value = key.unsqueeze(2), value.unsqueeze(2)
        scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
        scores = self.cap * torch.tanh(scores / self.cap)
        places = torch.arange(query.shape[-2], device=query.device)
        ahead = places[:, None] < places[None, :]
        weights = scores.float().masked_fill(ahead, float("-inf")).softmax(dim=-1)
        return weights.to(value.dtype) @ value


def get_inputs():
    query = torch.randn(batch_size, kv_heads, queries_each, sequence, head_dim, dtype=torch.bfloat16)
    shape = (batch_size, kv_heads, sequence, head_dim)
    return [10.0 * query, torch.randn(shape, dtype=torch.bfloat16), torch.randn(shape, dtype=torch.bfloat16)]


def get_init_inputs():
    return [cap]
