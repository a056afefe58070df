"""Rows of a table in bf16, many more than an interpreter runs."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, table, index):
        return table[index]


def get_inputs():
    return [torch.randn(4096, 64, dtype=torch.bfloat16), torch.randint(0, 4096, (131072,))]


def get_init_inputs():
    return []
