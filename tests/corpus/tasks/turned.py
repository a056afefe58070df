"""A batch of matrices, each transposed, in order."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.transpose(1, 2).contiguous()


def get_inputs():
    return [torch.randn(4, 48, 64)]


def get_init_inputs():
    return []
