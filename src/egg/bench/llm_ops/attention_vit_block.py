"""Self-attention of a vision transformer with its projections, fp16: ViT-L/14 at 224 pixels.

257 tokens of width 1024, 16 heads; one packed projection makes queries, keys and values.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 64
tokens = 257
heads = 16
head_dim = 64


class Model(nn.Module):
    def __init__(self, heads: int, head_dim: int):
        super().__init__()
        self.heads = heads
        self.packed = nn.Linear(heads * head_dim, 3 * heads * head_dim, dtype=torch.float16)
        self.out = nn.Linear(heads * head_dim, heads * head_dim, dtype=torch.float16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        packed = self.packed(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = packed.unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).flatten(2))


def get_inputs():
    return [torch.randn(batch_size, tokens, heads * head_dim, dtype=torch.float16)]


def get_init_inputs():
    return [heads, head_dim]
