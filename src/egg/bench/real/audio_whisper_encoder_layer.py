"""A layer of the Whisper-large-v3 encoder, fp16: 1500 frames of width 1280, 20 heads, no bias for keys."""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 8
frames = 1500
heads = 20
head_dim = 64


class Model(nn.Module):
    def __init__(self, heads: int, head_dim: int):
        super().__init__()
        dim, self.heads = heads * head_dim, heads
        self.attn_ln, self.mlp_ln = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.query, self.value, self.out = (nn.Linear(dim, dim) for _ in range(3))
        self.key = nn.Linear(dim, dim, bias=False)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.half()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.attn_ln(x)
        q, k, v = (
            p(h).unflatten(-1, (self.heads, -1)).permute(0, 2, 1, 3)
            for p in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(q, k, v).permute(0, 2, 1, 3).flatten(start_dim=2)
        x = x + self.out(mixed)
        return x + self.mlp(self.mlp_ln(x))


def get_inputs():
    return [torch.randn(batch_size, frames, heads * head_dim, dtype=torch.float16)]


def get_init_inputs():
    return [heads, head_dim]
