"""Sums of ever shorter beginnings of a vector: all of it, half, a third, a quarter... in pages of 4096."""

import torch
from torch import nn

pages = 8192
parts = 4096


class Model(nn.Module):
    def __init__(self, parts: int):
        super().__init__()
        self.parts = parts

    def forward(self, x):
        ends = (x.shape[0] // torch.arange(1, self.parts + 1, device=x.device)).clamp(min=1)
        return torch.cumsum(x.sum(dim=1, dtype=torch.float64), dim=0)[ends - 1].float()


def get_inputs():
    return [torch.rand(pages, 4096)]


def get_init_inputs():
    return [parts]
