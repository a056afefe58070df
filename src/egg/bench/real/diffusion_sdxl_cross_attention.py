"""Cross attention of the SDXL U-Net to 77 text tokens with its projections, fp16.

4096 places of width 640, 10 heads.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 8
places = 4096
heads = 10
head_dim = 64
words = 77
text = 2048


class Model(nn.Module):
    def __init__(self, heads: int, head_dim: int, text: int):
        super().__init__()
        dim, self.heads = heads * head_dim, heads
        self.norm = nn.LayerNorm(dim)
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_k = nn.Linear(text, dim, bias=False)
        self.to_v = nn.Linear(text, dim, bias=False)
        self.to_out = nn.Linear(dim, dim)
        self.half()

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        batch, _, dim = x.shape
        q, k, v = self.to_q(self.norm(x)), self.to_k(context), self.to_v(context)
        q, k, v = (t.view(batch, -1, self.heads, dim // self.heads).transpose(1, 2) for t in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v)
        return x + self.to_out(mixed.transpose(1, 2).reshape(batch, -1, dim))


def get_inputs():
    x = torch.randn(batch_size, places, heads * head_dim, dtype=torch.float16)
    return [x, torch.randn(batch_size, words, text, dtype=torch.float16)]


def get_init_inputs():
    return [heads, head_dim, text]
