"""Every row over its largest magnitude."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x / x.abs().amax(dim=1, keepdim=True)


def get_inputs():
    return [torch.randn(16, 64)]


def get_init_inputs():
    return []
