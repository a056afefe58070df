"""Rows times the weight that a router gave them, stored in eight bits."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, g):
        return (x * torch.sigmoid(g)[:, None]).to(torch.float8_e4m3fn)


rows, columns = 128, 32


def get_inputs():
    return [64.0 * torch.randn(rows, columns), 3.5 * torch.randn(rows)]


def get_init_inputs():
    return []
