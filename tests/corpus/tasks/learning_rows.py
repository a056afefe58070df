"""Gated rows of an input that requires a gradient."""

import torch
import torch.nn as nn

rows, columns = 32, 64


class Model(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x), x


def get_inputs():
    return [torch.randn(rows, columns, requires_grad=True)]


def get_init_inputs():
    return []
