"""Amounts as whole cents, rounded towards zero."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return (x * 100).to(torch.int32)


rows = 16
columns = 256


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
