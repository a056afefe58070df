# policy: library_calls=forbid
"""All scores between queries and keys: a product of two row-major matrices, the second transposed."""

import torch
from torch import nn

queries = 4096
keys = 8192
width = 1024


class Model(nn.Module):
    def forward(self, q, k):
        return q @ k.T


def get_inputs():
    return [torch.randn(queries, width), torch.randn(keys, width)]


def get_init_inputs():
    return []
