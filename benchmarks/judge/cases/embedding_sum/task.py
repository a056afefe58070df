# policy: library_calls=forbid
"""Token embeddings plus positions, scaled; the table is small enough that all of it is read."""

import math

import torch
from torch import nn

batch = 16
tokens = 2048
vocabulary = 8192
width = 1024


class Model(nn.Module):
    def __init__(self, vocabulary: int, tokens: int, width: int):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.place = nn.Parameter(torch.randn(tokens, width))
        self.scale = math.sqrt(width)

    def forward(self, ids):
        return self.embed(ids) * self.scale + self.place


def get_inputs():
    return [torch.randint(0, vocabulary, (batch, tokens))]


def get_init_inputs():
    return [vocabulary, tokens, width]
