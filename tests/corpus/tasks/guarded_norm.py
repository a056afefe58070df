"""Rows over their norm and the least that their type can add to one; some rows are all but nothing."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x / (x.square().sum(dim=1, keepdim=True) + torch.finfo(x.dtype).eps)


rows = 64
columns = 64


def get_inputs():
    return [3e-5 * torch.randn(rows, columns)]


def get_init_inputs():
    return []
