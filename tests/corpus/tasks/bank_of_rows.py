"""Features less their mean; the first rows of a bank follow the first rows of the input, the others stay."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("bank", torch.zeros(16, features))

    def forward(self, x):
        self.bank[:8] = 0.9 * self.bank[:8] + 0.1 * x[:8]
        return x - x.mean(dim=0)


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return [64]
