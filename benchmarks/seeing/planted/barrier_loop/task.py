"""A slow relaxation of every element towards a fixed point."""

import torch
from torch import nn

length = 540672
rounds = 4096


class Model(nn.Module):
    def __init__(self, rounds: int):
        super().__init__()
        self.rounds = rounds

    def forward(self, x):
        y = x
        for _ in range(self.rounds):
            y = y * 0.999 + x
        return y


def get_inputs():
    return [torch.rand(length)]


def get_init_inputs():
    return [rounds]
