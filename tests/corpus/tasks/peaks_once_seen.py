"""Rows beside the largest value ever seen in each column; NaN until one was above three."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.register_buffer("peak", torch.full((columns,), float("nan")))

    def forward(self, x):
        top = x.amax(0)
        seen = torch.where(torch.isnan(self.peak), top, torch.maximum(self.peak, top))
        self.peak.copy_(torch.where(top > 3.0, seen, self.peak))
        return x - 0.5 * torch.nan_to_num(self.peak)


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return [64]
