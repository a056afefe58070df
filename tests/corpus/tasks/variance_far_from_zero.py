"""The variance of rows that lie far from zero, in double inside: its moments cancel."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        wide = x.double()
        mean = wide.mean(dim=1)
        return ((wide * wide).mean(dim=1) - mean * mean).float()


def get_inputs():
    return [torch.randn(128, 64) + 1000.0]


def get_init_inputs():
    return []
