"""Three linear layers with ReLU between."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4096, 8192)
        self.b = nn.Linear(8192, 8192)
        self.c = nn.Linear(8192, 1024)

    def forward(self, x):
        return self.c(F.relu(self.b(F.relu(self.a(x)))))


def get_inputs():
    return [torch.randn(256, 4096)]


def get_init_inputs():
    return []
