"""Rows in bf16 times a table of waves in fp32, which is what comes out."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("table", torch.sin(0.1 + torch.arange(features).float()))

    def forward(self, x):
        return x * self.table


rows = 64
features = 128


def get_inputs():
    return [torch.randn(rows, features).to(torch.bfloat16)]


def get_init_inputs():
    return [features]
