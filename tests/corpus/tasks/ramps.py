"""Straight lines between the two ends of every row."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        t = torch.arange(64, device=a.device, dtype=a.dtype) / 63
        return a[:, None] + (b - a)[:, None] * t


def get_inputs():
    return [torch.randn(16), torch.randn(16)]


def get_init_inputs():
    return []
