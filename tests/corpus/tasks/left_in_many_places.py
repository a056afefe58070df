"""Gated values; the gates and their load are left for callers: whole, in an object, a queue and a buffer."""

from collections import deque

import torch
import torch.nn as nn


class Stats:
    load = None


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.stats = Stats()
        self.recent = deque(maxlen=4)
        self.register_buffer("average", torch.zeros(columns), persistent=False)
        self.gates, self.turned, self.active = None, None, 0

    def forward(self, x):
        self.gates = torch.sigmoid(x)
        self.stats.load = self.gates.mean(dim=0)
        self.recent.append(self.stats.load)
        self.average.lerp_(self.stats.load, 0.5)
        self.turned = torch.complex(-x, x)
        self.active = int((x > 0).sum())
        return x * self.gates


rows = 160
columns = 128


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return [columns]
