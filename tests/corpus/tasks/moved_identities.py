"""Identities in another order, as floats that hold them all."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, ids, order):
        return torch.gather(ids, 1, order).float()


def get_inputs():
    return [torch.randint(0, 1 << 24, (8, 64)), torch.rand(8, 64).argsort(1)]


def get_init_inputs():
    return []
