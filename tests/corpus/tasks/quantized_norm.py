"""RMS norm, rounded to integers of eight bits for the next layer."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        return torch.clamp(torch.round(y * 32.0), -127, 127).to(torch.int8)


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return []
