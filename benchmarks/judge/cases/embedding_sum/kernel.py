"""A gather with its arithmetic done on the way: one write per element."""

import math

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def embed(ids_ptr, table_ptr, place_ptr, y_ptr, tokens, width, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    inside = c < width
    token = tl.load(ids_ptr + row)
    v = tl.load(table_ptr + token * width + c, mask=inside, other=0.0)
    p = tl.load(place_ptr + (row % tokens) * width + c, mask=inside, other=0.0)
    tl.store(y_ptr + row.to(tl.int64) * width + c, v * scale + p, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, vocabulary: int, tokens: int, width: int):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.place = nn.Parameter(torch.randn(tokens, width))
        self.scale = math.sqrt(width)

    def forward(self, ids):
        ids = ids.contiguous()
        batch, tokens = ids.shape
        width = self.place.shape[1]
        y = torch.empty((batch, tokens, width), device=ids.device, dtype=self.place.dtype)
        block = triton.next_power_of_2(width)
        embed[(batch * tokens,)](
            ids, self.embed.weight, self.place, y, tokens, width, self.scale, BLOCK=block, num_warps=4
        )
        return y
