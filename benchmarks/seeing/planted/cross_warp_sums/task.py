"""Rows of 1024, brought back to a mean of zero after every one of many steps."""

import torch
from torch import nn

rows = 1056
rounds = 1024


class Model(nn.Module):
    def __init__(self, rounds: int):
        super().__init__()
        self.rounds = rounds

    def forward(self, x):
        y = x
        for _ in range(self.rounds):
            y = 0.5 * (y - y.mean(dim=1, keepdim=True)) + x
        return y


def get_inputs():
    return [torch.randn(rows, 1024)]


def get_init_inputs():
    return [rounds]
