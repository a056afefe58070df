"""GELU by its formula with a hyperbolic tangent, one operation after another."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))))


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return []
