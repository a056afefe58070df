"""A bf16 program whose table of frequencies is in fp32, as rotary embeddings have it."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.register_buffer("frequencies", torch.rand(columns))

    def forward(self, x):
        return (x.float() * self.frequencies.cos()).to(x.dtype)


def get_inputs():
    return [torch.randn(64, 256, dtype=torch.bfloat16)]


def get_init_inputs():
    return [256]
