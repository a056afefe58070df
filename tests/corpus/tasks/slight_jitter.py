"""Every element is shaken a little: by some ten-thousandths of itself, drawn anew at every call."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * (1.0 + 2e-4 * torch.rand_like(x))


rows = 32
columns = 128


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
