# policy: library_calls=forbid
"""Greedy decoding: the largest logit of every row, and where it is."""

import torch
from torch import nn

rows = 4096
vocabulary = 16384


class Model(nn.Module):
    def forward(self, logits):
        best = torch.argmax(logits, dim=1)
        return best, torch.amax(logits, dim=1)


def get_inputs():
    return [torch.randn(rows, vocabulary)]


def get_init_inputs():
    return []
