"""The mean of squares."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a):
        return a.square().mean()


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return []
