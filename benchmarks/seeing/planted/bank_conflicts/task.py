"""Rows of 1024, seen as 32 by 4 by 8, with the last axis brought to the front and damped, again and again."""

import torch
from torch import nn

rows = 8448
rounds = 33


class Model(nn.Module):
    def __init__(self, rounds: int):
        super().__init__()
        self.rounds = rounds

    def forward(self, x):
        y = x
        for _ in range(self.rounds):
            y = 0.5 * y.view(-1, 32, 4, 8).permute(0, 3, 1, 2).reshape(x.shape) + x
        return y


def get_inputs():
    return [torch.randn(rows, 1024)]


def get_init_inputs():
    return [rounds]
