"""Rows in bf16, gated in fp32, with a copy of the result in bf16 beside it."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        y = F.silu(x.float())
        return y, y.to(torch.bfloat16)


def get_inputs():
    return [torch.randn(64, 128).bfloat16()]


def get_init_inputs():
    return []
