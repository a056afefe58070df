# policy: precision=fp16 library_calls=forbid
"""Causal attention in fp16."""

import torch
from torch import nn
from torch.nn import functional as F

batch = 4
heads = 16
tokens = 2048
width = 64


class Model(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [torch.randn(batch, heads, tokens, width) for _ in range(3)]


def get_init_inputs():
    return []
