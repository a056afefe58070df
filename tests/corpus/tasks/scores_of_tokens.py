"""Scores of tokens; those of the padding token do not count."""

import torch
import torch.nn as nn

PAD = 31337


class Model(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.score = nn.Parameter(torch.randn(words))

    def forward(self, ids):
        return torch.where(ids == PAD, 0.0, self.score[ids])


def get_inputs():
    return [torch.randint(0, 50257, (8, 64))]


def get_init_inputs():
    return [50257]
