"""Normed keys, and their rows of a cache (bf16): every row goes to a slot of its own."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, slots, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.register_buffer("cache", torch.zeros(slots, width, dtype=torch.bfloat16))

    def forward(self, keys, slots):
        wide = keys.float()
        made = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * self.weight).to(keys.dtype)
        self.cache[slots] = made
        return made


def get_inputs():
    return [torch.randn(16, 32, dtype=torch.bfloat16), torch.randperm(256)[:16]]


def get_init_inputs():
    return [256, 32]
