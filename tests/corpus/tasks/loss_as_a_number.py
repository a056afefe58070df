"""Mean squared error of each row, and of all of them as a number of Python's for the log."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        rows = (x - y).square().mean(-1)
        return rows, rows.mean().item()


def get_inputs():
    return [torch.randn(16, 300), torch.randn(16, 300)]


def get_init_inputs():
    return []
