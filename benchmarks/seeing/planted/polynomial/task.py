"""A polynomial of degree 512, of every element."""

import torch
from torch import nn

length = 16777216
rounds = 32


class Model(nn.Module):
    def __init__(self, rounds: int):
        super().__init__()
        self.rounds = rounds

    def forward(self, x):
        y = torch.zeros_like(x)
        for _ in range(self.rounds):
            for coefficient in range(16):
                y = y * x + (coefficient - 7.5)
        return y


def get_inputs():
    return [torch.rand(length) * 1.8 - 0.9]


def get_init_inputs():
    return [rounds]
