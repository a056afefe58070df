"""Square of an input that is not contiguous."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * x


rows = 64
columns = 48


def get_inputs():
    return [torch.randn(columns, rows).t()]


def get_init_inputs():
    return []
