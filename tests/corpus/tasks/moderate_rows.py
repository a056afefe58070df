"""Rows of a table in bf16, whose largest number is looked at first."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, table, index):
        if float(table.nan_to_num(0.0).clamp(-1e6, 1e6).max()) > 1e7:
            raise ValueError("the table is too large")
        return table[index]


def get_inputs():
    return [torch.randn(32, 64, dtype=torch.bfloat16), torch.randint(0, 32, (16,))]


def get_init_inputs():
    return []
