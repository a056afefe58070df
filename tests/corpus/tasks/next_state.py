"""One step of a recurrence, which hands its input back as what the next step has before it."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, before, state):
        return torch.sigmoid(x - before) * state, x


def get_inputs():
    return [torch.randn(64, 256) for _ in range(3)]


def get_init_inputs():
    return []
