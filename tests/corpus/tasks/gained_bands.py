"""Every band of features has a gain of its own, six decades up and down."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.features = features

    def forward(self, x):
        gain = torch.logspace(-6, 6, self.features, dtype=x.dtype, device=x.device)
        return (3.0 + torch.tanh(x)) * gain


rows = 16
features = 256


def get_inputs():
    return [torch.randn(rows, features)]


def get_init_inputs():
    return [features]
