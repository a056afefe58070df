"""Two oscillators, a fast and a slow one."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sin(torch.stack((x[0] * 4000.0, x[1])))


def get_inputs():
    return [torch.randn(2, 48)]


def get_init_inputs():
    return []
