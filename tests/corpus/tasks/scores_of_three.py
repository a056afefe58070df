import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b, c):
        return torch.softmax(a.float().sum(0) * b.float().sum(0) * c.float().sum(0), dim=-1)


def get_inputs():
    return [torch.randn(8, 1000, dtype=torch.bfloat16) for _ in range(3)]


def get_init_inputs():
    return []
