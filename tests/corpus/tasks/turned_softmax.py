"""Softmax of rows that are read from the end."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(torch.flip(x, dims=(1,)), dim=-1)


rows = 32
columns = 128


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
