"""Efficient self-attention of SegFormer-B2's first stage, fp16.

16384 tokens of width 64, keys from an 8 x 8 reduction. Keys and values come from the image reduced by a
strided convolution and a layer norm, so that every token attends to 256 places.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 8
side = 128
dim = 64
heads = 1
reduction = 8


class Model(nn.Module):
    def __init__(self, dim: int, heads: int, reduction: int):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.dense = nn.Linear(dim, dim)
        self.sr = nn.Conv2d(dim, dim, reduction, stride=reduction)
        self.norm = nn.LayerNorm(dim)
        self.layer_norm = nn.LayerNorm(dim)
        self.half()

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, dim = x.shape
        side = int(tokens**0.5)
        h = self.layer_norm(x)
        reduced = self.sr(h.permute(0, 2, 1).reshape(batch, dim, side, side))
        reduced = self.norm(reduced.reshape(batch, dim, -1).permute(0, 2, 1))
        q, k, v = self.split(self.query(h)), self.split(self.key(reduced)), self.split(self.value(reduced))
        weights = F.softmax(q @ k.transpose(-1, -2) / (dim // self.heads) ** 0.5, dim=-1)
        mixed = (weights @ v).permute(0, 2, 1, 3).reshape(batch, tokens, dim)
        return x + self.dense(mixed)


def get_inputs():
    return [torch.randn(batch_size, side * side, dim, dtype=torch.float16)]


def get_init_inputs():
    return [dim, heads, reduction]
