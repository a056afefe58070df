"""Batch norm in training mode: the statistics are those of the batch."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x):
        return self.norm(x)


rows = 64
features = 64


def get_inputs():
    return [torch.randn(rows, features)]


def get_init_inputs():
    return [features]
