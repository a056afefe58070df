"""A product of which every third row is in a large unit: a third of the output hides the rest."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64) / 8)

    def forward(self, x):
        row = torch.arange(x.shape[0], device=x.device)
        return (x @ self.weight) * torch.where(row % 3 == 0, 1.0, 2.0**-15)[:, None]


def get_inputs():
    return [torch.randn(96, 64)]


def get_init_inputs():
    return []
