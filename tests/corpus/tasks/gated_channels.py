"""Channels times the gate of each sample (squeeze and excitation, channels last), in bf16."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, g):
        return x * torch.sigmoid(g)[:, None, :]


batch, tokens, channels = 4, 32, 32


def get_inputs():
    return [torch.randn(batch, tokens, channels).bfloat16(), (3.5 * torch.randn(batch, channels)).bfloat16()]


def get_init_inputs():
    return []
