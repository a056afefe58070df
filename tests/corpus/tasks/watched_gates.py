"""Gated values, and what trainers read: a penalty of weights, a loss, a count of calls, a change."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns))
        self.calls = 0
        self.penalty, self.loss, self.last, self.change = None, None, None, None

    def forward(self, x):
        self.calls += 1
        self.penalty = (self.weight.square() - 1.0).square().sum()
        gates = torch.sigmoid(x * self.weight)
        mean = gates.mean(dim=0)
        self.loss = mean.square().sum() + 1e-2 * gates.square().mean()
        if self.last is not None:
            self.change = (mean - self.last).abs().sum()
        self.last = mean
        return x * gates


rows = 32
columns = 64


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return [columns]
