"""A float32 product; each column has a gain, which comes in bfloat16."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b, gain):
        return torch.matmul(a, b) * gain


def get_inputs():
    return [torch.randn(64, 128), torch.randn(128, 64), (torch.rand(64) + 0.5).bfloat16()]


def get_init_inputs():
    return []
