"""Cross-attention of image places to a prompt, with its projections, fp16: the SDXL U-Net at 64 x 64.

4096 places of 640 channels look at 77 tokens of width 2048 with 10 heads of 64: long on one side, short on
the other.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 4
places = 4096
text_tokens = 77
text_width = 2048
heads = 10
head_dim = 64


class Model(nn.Module):
    def __init__(self, heads: int, head_dim: int, text_width: int):
        super().__init__()
        width = heads * head_dim
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False, dtype=torch.float16)
        self.key = nn.Linear(text_width, width, bias=False, dtype=torch.float16)
        self.value = nn.Linear(text_width, width, bias=False, dtype=torch.float16)
        self.out = nn.Linear(width, width, dtype=torch.float16)

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            self.split(self.query(x)),
            self.split(self.key(text)),
            self.split(self.value(text)),
        )
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def get_inputs():
    x = torch.randn(batch_size, places, heads * head_dim, dtype=torch.float16)
    return [x, torch.randn(batch_size, text_tokens, text_width, dtype=torch.float16)]


def get_init_inputs():
    return [heads, head_dim, text_width]
