"""Sums of rows of 16 bits, in 32, rounded down to integers."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.floor(x.float().sum(dim=1)).to(torch.int32)


rows = 4096
features = 16


def get_inputs():
    return [torch.randn(rows, features).to(torch.bfloat16)]


def get_init_inputs():
    return []
