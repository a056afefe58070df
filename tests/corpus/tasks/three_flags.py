import torch
import torch.nn as nn


class Model(nn.Module):
    """x^3 + x, and what three flags ask for."""

    def __init__(self, relu=False, shift=False, double=False):
        super().__init__()
        self.relu, self.shift, self.double = relu, shift, double

    def forward(self, x):
        y = x * x * x + x
        y = torch.relu(y) if self.relu else y
        y = y + 1.0 if self.shift else y
        return y * 2.0 if self.double else y


def get_inputs():
    return [torch.randn(16, 64)]


def get_init_inputs():
    return [False, False, False]
