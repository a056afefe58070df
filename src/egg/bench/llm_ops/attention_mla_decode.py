"""Decode attention over a compressed cache in bf16: the latent attention of DeepSeek-V3, absorbed form.

128 heads share one latent vector of 512 and one rotary key of 64 per token. The up-projections are absorbed
into the queries, so the latents are both keys and values; the scale is that of the original head of 192.
"""

import torch
from torch import nn

batch_size = 16
context = 4096
heads = 128
latent = 512
rotary = 64
original_head = 192.0


class Model(nn.Module):
    def __init__(self, original_head: float):
        super().__init__()
        self.scale = original_head**-0.5

    def forward(
        self,
        latent_query: torch.Tensor,
        rotary_query: torch.Tensor,
        latent_cache: torch.Tensor,
        rotary_cache: torch.Tensor,
    ) -> torch.Tensor:
        scores = latent_query @ latent_cache.transpose(1, 2) + rotary_query @ rotary_cache.transpose(1, 2)
        weights = (scores * self.scale).float().softmax(dim=-1)
        return weights.to(latent_query.dtype) @ latent_cache


def get_inputs():
    shapes = [(heads, latent), (heads, rotary), (context, latent), (context, rotary)]
    return [torch.randn(batch_size, rows, width, dtype=torch.bfloat16) for rows, width in shapes]


def get_init_inputs():
    return [original_head]
