"""Every element times a count, which is a tensor of one element."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, count):
        return x * count


rows = 16
columns = 128


def get_inputs():
    return [torch.randn(rows, columns), torch.randint(1, 9, (1,))]


def get_init_inputs():
    return []
