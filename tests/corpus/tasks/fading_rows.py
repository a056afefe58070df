"""A product in bf16 whose rows fade: the states of a scan with a decay per position."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64, dtype=torch.bfloat16) / 8)

    def forward(self, x):
        decay = torch.exp(-0.1 * torch.arange(x.shape[0], device=x.device, dtype=torch.float32))
        return ((x @ self.weight).float() * decay[:, None]).to(torch.bfloat16)


def get_inputs():
    return [torch.randn(128, 64, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
