"""Sixty small steps of a damped iteration on a short vector."""

import torch
from torch import nn

length = 4096
steps = 60


class Model(nn.Module):
    def __init__(self, steps: int):
        super().__init__()
        self.steps = steps

    def forward(self, x):
        y = x
        for _ in range(self.steps):
            y = 0.9 * y + x
        return y


def get_inputs():
    return [torch.randn(length)]


def get_init_inputs():
    return [steps]
