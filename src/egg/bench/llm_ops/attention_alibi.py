"""Causal attention with linear biases instead of position embeddings, fp16: BLOOM-7B1, 32 heads of 128.

Head h takes 2 ** (-8 (h + 1) / heads) off its scores for every place of distance.
"""

import torch
from torch import nn

batch_size = 1
sequence = 2048
heads = 32
head_dim = 128


class Model(nn.Module):
    slopes: torch.Tensor

    def __init__(self, heads: int):
        super().__init__()
        self.register_buffer("slopes", 2.0 ** (-8.0 * torch.arange(1, heads + 1).float() / heads))

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        places = torch.arange(query.shape[2], device=query.device)
        distance = places[:, None] - places[None, :]
        scores = (query @ key.transpose(-2, -1)).float() * query.shape[-1] ** -0.5
        scores = scores - self.slopes[:, None, None] * distance
        weights = scores.masked_fill(distance < 0, float("-inf")).softmax(dim=-1)
        return weights.to(value.dtype) @ value


def get_inputs():
    return [torch.randn(batch_size, heads, sequence, head_dim, dtype=torch.float16) for _ in range(3)]


def get_init_inputs():
    return [heads]
