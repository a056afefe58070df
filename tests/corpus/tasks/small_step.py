import torch
import torch.nn as nn


class Model(nn.Module):
    """One small step of growth whose rate is a layer's: x * (1 + dt * tanh(x W))."""

    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features) / features**0.5)

    def forward(self, x):
        return x + 1e-6 * x * torch.tanh(x @ self.weight)


rows = 16
features = 128


def get_inputs():
    return [torch.randn(rows, features)]


def get_init_inputs():
    return [features]
