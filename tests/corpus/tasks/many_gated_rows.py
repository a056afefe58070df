"""A gate over many short rows, in bf16."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, gain):
        return torch.nn.functional.silu(x) * gain


def get_inputs():
    x = torch.randn(131072, 16, dtype=torch.bfloat16)
    return [x, torch.rand(16, dtype=torch.bfloat16) + 0.5]


def get_init_inputs():
    return []
