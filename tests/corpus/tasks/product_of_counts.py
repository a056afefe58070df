"""A product of small counts, which float32 holds exactly."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a.float(), b.float())


m = 32
n = 32
k = 512


def get_inputs():
    return [torch.randint(12, 16, (m, k), dtype=torch.int8), torch.randint(12, 16, (k, n), dtype=torch.int8)]


def get_init_inputs():
    return []
